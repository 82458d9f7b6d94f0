"""Decides on findings: severities from a settings file, and comments that ignore a finding with a reason."""
