"""Write the tables of a state to files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from privtab.base import UsageError, write_file
from privtab.state import TABLE_COLUMNS


def write_tables(output: Path, tables: dict[str, list[dict[str, str]]], *, in_place: bool = False) -> None:
    """Write one file, or a folder with a file for each table, empty tables too: an import says all there is."""
    if output.suffix == ".json":
        write_file(output, (json.dumps(tables, indent=1, ensure_ascii=False) + "\n").encode(), in_place=in_place)
        return
    if output.suffix:
        raise UsageError(f"`--output {output}`: a state is written as a .json file or as a folder of CSV files")

    for table, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, TABLE_COLUMNS[table].all, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_file(output / f"{table}.csv", text.getvalue().encode(), in_place=in_place)
