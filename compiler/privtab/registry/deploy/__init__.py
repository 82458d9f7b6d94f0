"""Deploy policies to sidecars and roll back: gates, releases, canaries, and the status of the fleet."""
