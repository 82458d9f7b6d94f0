"""The registry server: serves bundles with long polls, and receives the sidecars' reports."""
