"""The OPA process: a pinned binary found or built, and a server run on bundles."""
