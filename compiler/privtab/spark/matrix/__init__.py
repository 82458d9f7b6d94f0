"""The whole matrix: who may do what with which entities, and through what."""
