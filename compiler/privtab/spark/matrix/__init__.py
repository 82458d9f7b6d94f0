"""The entitlement matrix: which principals may do what with which entities, and through which grants."""
