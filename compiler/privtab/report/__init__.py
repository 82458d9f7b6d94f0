"""Findings and test results in the formats of other tools; takes plain values and returns text."""
