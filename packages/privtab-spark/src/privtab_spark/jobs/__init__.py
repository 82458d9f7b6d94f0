"""Jobs: the functions of `privtab_spark` as programs for spark-submit and as `privtab spark` commands with the same options."""

from __future__ import annotations

from collections.abc import Mapping

JOBS: Mapping[str, str] = {
    "decide": "Decide a request for each row of a table.",
    "visible": "Keep the rows of a table that a user may see.",
    "entitlements": "Write the entitlement matrix: the permissions of principals, and the grants behind them.",
    "certify": "Write the matrix with figures, findings and a page to sign.",
    "state": "Read a state from any Spark source, validate it, and write the valid rows.",
}
"""Each job is a module of this package with `main(arguments) -> exit code`."""
