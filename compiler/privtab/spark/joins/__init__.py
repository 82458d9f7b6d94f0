"""Decisions by joins of DataFrames."""
