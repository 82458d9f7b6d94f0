"""Decisions on Spark."""
