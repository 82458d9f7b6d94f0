"""The language of policies: reading, findings, formatting, lint and reports."""
