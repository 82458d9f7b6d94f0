"""The registry for sidecars: bundles with long polls and deltas, and what the sidecars tell of themselves."""
