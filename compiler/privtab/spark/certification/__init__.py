"""Certification: the matrix written down, with figures, findings and a page for those who sign it."""
