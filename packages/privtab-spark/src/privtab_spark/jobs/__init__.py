"""Jobs: the functions of `privtab_spark` as programs for spark-submit and as `privtab spark` commands with the same options."""

from __future__ import annotations

from collections.abc import Mapping

JOBS: Mapping[str, str] = {
    "decide": "decide_rows",
    "certify": "write_certification",
}
"""Each job is a module of this package with `main(arguments) -> exit code`; here with the name of the function that it runs."""
