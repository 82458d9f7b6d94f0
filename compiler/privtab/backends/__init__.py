"""Back ends: each takes a Program to artifacts."""
