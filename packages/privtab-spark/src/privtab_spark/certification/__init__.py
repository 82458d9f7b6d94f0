"""Certification: a report over the entitlement matrix, with figures, findings and a page for the reviewers who sign it."""
