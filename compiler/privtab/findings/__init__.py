"""Builders of the findings that readers of policies report, one file for each code. `checks` adds those that search."""
