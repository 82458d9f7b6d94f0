"""`privtab certify`: the matrix of entitlements to sign."""

from __future__ import annotations

from privtab_spark.commands.spark import job

PANEL = "Check"
run = job("certify")
