"""Models of other systems as policies."""
