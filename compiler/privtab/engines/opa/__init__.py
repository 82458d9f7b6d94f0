"""The OPA process: find or build the pinned binary, and run a server on bundles."""
