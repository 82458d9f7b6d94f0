"""Door documents: how the requests of another system become those of a policy, which answers them in that system's form."""
