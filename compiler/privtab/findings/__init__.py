"""Findings that readers of policies report: one file for each code, with a builder. `checks` adds those that search."""
