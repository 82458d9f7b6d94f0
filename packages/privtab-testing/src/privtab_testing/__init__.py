"""Scenarios of policies, their runner, and the conformance of running systems."""
