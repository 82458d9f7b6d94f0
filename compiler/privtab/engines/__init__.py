"""Engines in process: they run the program of a policy bundle over the index of a state bundle, and need no server."""
