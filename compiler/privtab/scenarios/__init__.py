"""Scenarios: what a policy must answer, how much of its table that proves, and which faults it would not notice."""
