"""Find the files of each table in the folder of a state, for reading with and without Spark.

Each file and folder in it is one of a table, is of no consequence, is accepted by name, or is an error: it may hold a denial.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from privtab.base.errors import UsageError
from privtab.base.files import WHOLE, ending_of
from privtab.base.hints import nearest
from privtab.base.records import dataclass
from privtab.state.findings import RowLocation, StateFinding
from privtab.state.nodes import ALL_TABLES
from privtab.state.raw import RawReader

_LOGS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata"}
"""The folder in which a table of a versioned format records which of its files count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """What holds the rows of one table.

    For example:

        files = TableFiles.in_folder(Path("state"), RawReader(), (".csv",), ALL_TABLES)["grants"].parts
    """

    path: Path
    """The file, or the folder of files."""
    parts: tuple[Path, ...]
    """The files; none of a table in a versioned format."""
    ending: str

    @staticmethod
    def in_folder(
        folder: Path, reader: RawReader, endings: Collection[str], tables: Collection[str]
    ) -> dict[str, TableFiles]:
        """The files of each table; reports what is no file of a table, and tables with several files, which are not read.

        `endings`: of the formats that can be read. `tables`: those that a state of the policy has. Raises UsageError if none has a file.
        """
        entries: dict[str, list[Path]] = {}
        for entry in _entries(folder):
            table, ending = ending_of(entry.name)
            known = (ending in endings and entry.is_file()) or (ending in ("", *endings) and entry.is_dir())
            if table in tables and known:
                entries.setdefault(table, []).append(entry)
            elif entry.name not in reader.accept:
                place = RowLocation(path=str(entry), table="", row=0)
                what = "folder" if entry.is_dir() else "file"
                advice = _advice(entry.name, endings, tables)
                reader.report("S006", f"`{entry.name}` is no {what} of a table", place, help=advice)
        if not entries:
            raise UsageError(f"{folder} has no file of a table of a state; {_remarks(folder, reader.findings)}")
        reader.tables |= entries.keys()
        found: dict[str, TableFiles] = {}
        for table, of_table in sorted(entries.items()):
            if len(of_table) > 1:
                names = " and ".join(f"`{entry.name}`" for entry in of_table)
                place = RowLocation(path=str(folder), table=table, row=0)
                message = f"table `{table}` has {len(of_table)} files: {names}"
                reader.report("S005", message, place, help="keep one of them")
            elif (files := _files(of_table[0], table, reader, endings)) is not None:
                found[table] = files
        return found

    @staticmethod
    def format_of(path: Path) -> str | None:
        """The format of a versioned table in a folder, whose Parquet files also hold deleted rows; None for any other folder or file."""
        if not path.is_dir():
            return None
        for format_, log in _LOGS.items():
            if (path / log).is_dir() and (format_ != "iceberg" or any((path / log).glob("*.metadata.json"))):
                return format_
        return None


def _remarks(folder: Path, findings: Sequence[StateFinding]) -> str:
    """The advice for a folder without a file of a table."""
    remarks = [f"`{Path(finding.place.path).name}`: {finding.help}" for finding in findings]
    whole_files = [f.name for f in sorted(folder.iterdir()) if f.suffix.lower() in WHOLE and f.stem not in ALL_TABLES]
    if whole_files and not any("did you mean" in remark for remark in remarks):
        remarks = [f"a file with all tables is named itself, as in {folder / whole_files[0]}"]
    return (
        "; ".join(remarks) or f"a table's file has its name, as in `grants.csv`; the tables are {', '.join(ALL_TABLES)}"
    )


def _entries(folder: Path) -> list[Path]:
    """What is of consequence in a folder: all but names with `.` or `_` at the start, as Spark's `_SUCCESS`, and unlike its `_a=b`."""
    is_hidden = re.compile(r"\.|_[^=]*\Z").match
    return sorted((entry for entry in folder.iterdir() if not is_hidden(entry.name)), key=lambda entry: entry.name)


def _files(entry: Path, table: str, reader: RawReader, endings: Collection[str]) -> TableFiles | None:
    """The files of a table; None, with a finding, if they cannot be read as one table."""
    ending = ending_of(entry.name)[1]
    if not entry.is_dir():
        return TableFiles(path=entry, parts=(entry,), ending=ending)
    if TableFiles.format_of(entry) is not None:
        return TableFiles(path=entry, parts=(), ending=".parquet")
    parts = _entries(entry)
    found = {ending_of(part.name)[1] for part in parts}
    place = RowLocation(path=str(entry), table=table, row=0)
    for part in parts:
        if not part.is_file() or ending_of(part.name)[1] not in ({ending} if ending else endings):
            advice = f"its files end in {ending or ', '.join(endings)}"
            reader.report("S006", f"`{part.name}` is no file of `{table}`", replace(place, path=str(part)), help=advice)
    if len(found) == 1 and found <= set(endings):
        return TableFiles(path=entry, parts=tuple(parts), ending=found.pop())
    formats = sorted(found & {*endings})
    if len(formats) > 1:
        reader.report("S005", f"the files of `{table}` are of several formats: {', '.join(formats)}", place)
    elif not found:
        reader.report("S005", f"the folder of `{table}` has no files", place)
    return None


def _advice(name: str, endings: Collection[str], tables: Collection[str]) -> str:
    """The advice for a file or a folder of no table; one that looks like a table's is not to be accepted."""
    stem, ending = ending_of(name)
    similar = nearest(stem, tables, cutoff=0.75)
    if similar is not None and ending in endings and similar != stem:
        return f"did you mean `{similar}{name[len(stem) :]}`?"
    if similar is not None:
        return f"a table's file ends in {', '.join(endings)}"
    return f"move it away; or add `?accept={quote(name)}` to the state's location, to do without it"
