"""Logged decisions: read, decided again, and what of a state they used."""
