"""The engine in process: it runs the program of a policy bundle over the index of a state bundle, without a server."""
