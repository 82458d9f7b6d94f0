"""Where bundles are kept, and which of them sidecars run."""
