"""The registry server: serves bundles with long polls and deltas, and receives the sidecars' reports."""
