"""From a changed table to sidecars that decide by it, and back: gates, the release, who runs it, canaries."""
