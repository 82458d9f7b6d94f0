"""What becomes of findings: severities from a settings file, and comments that say why one may stay."""
