"""The rows of a state as native privileges of another system: what is there, what should be there, and the difference."""
