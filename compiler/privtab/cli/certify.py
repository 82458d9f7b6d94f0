"""`privtab certify`: the matrix of entitlements to sign."""

from __future__ import annotations

from privtab.cli.spark import job

PANEL = "Check"
SETTINGS, run = job("certify")
