"""Servers and what they keep: registries, deployments, the store, AuthZEN."""
