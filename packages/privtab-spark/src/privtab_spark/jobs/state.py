"""Read a state from any Spark source, validate it and write the valid rows: `python -m privtab_spark.jobs.state --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from privtab.base import ExitCode, FileError, state_location
from privtab_spark.jobs._job import SessionOptions, check_output, run
from privtab_spark.jobs._options import Option
from privtab_spark.policies import open_policy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code, which is 1 if rows are invalid."""
    return run("state", write_valid_rows, arguments)


def write_valid_rows(
    sources: Annotated[
        str, Option("a YAML file that says where each table is, or a folder with one for each", "SOURCES")
    ],
    *,
    policy: Annotated[str, Option("a policy by name (cdap/final) or a path", "POLICY", "-p")],
    output: Annotated[str, Option("output folder", "FOLDER", "-o")],
    data_format: Annotated[str, Option("format of the rows (parquet)", "NAME")] = "parquet",
    session: SessionOptions,
) -> int:
    """Read a state from any Spark source, validate it, and write the valid rows.

    Valid rows, findings and a summary are written below the folder. Its manifest is written last; files that it does not
    name are not part of the result. `privtab state build` makes bundles in shards from the same sources.

    The exit code is 1 if rows are invalid.

    Example:
      privtab spark state sources.yaml -p gravitino/1.1.0 -o checked
    """
    if "://" not in sources and not state_location(sources)[0].exists():
        raise FileError(f"no such file or folder: {sources}")
    check_output(output, None, overwrite=True)
    open_policy(policy)
    spark = session.start("state")
    from privtab_spark import read_state

    session.progress(f"reading {sources}")
    found = read_state(spark, sources, policy)
    session.progress(f"checking the rows, writing {output}")
    written = found.write(output, data_format)
    lines = [f"{output}  " + ", ".join(f"{count:,} {table}" for table, count in written["rows"].items())]
    lines += [
        f"  {severity:7}  {code} in {table}: {count:,} row(s)" for table, code, severity, count in written["findings"]
    ]
    session.show(written, lines)
    return ExitCode.FINDINGS if any(severity == "error" for _, _, severity, _ in written["findings"]) else 0


if __name__ == "__main__":
    sys.exit(main())
