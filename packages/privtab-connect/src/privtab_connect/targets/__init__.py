"""Targets of `privtab state push`, one module each; mapping documents name them by their entry points."""
