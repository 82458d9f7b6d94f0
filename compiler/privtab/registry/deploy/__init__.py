"""From a changed table to sidecars that decide by it, and back: gates, the switch, who runs it, canaries."""
