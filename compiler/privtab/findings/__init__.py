"""Builders of the findings that readers of policies report, by subject. `checks` adds those that search."""
