"""The file formats for tables of a state, by file ending, and how the location of a state accepts what is not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from urllib.parse import parse_qsl


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The file endings of a format, and whether it can be read without Spark."""

    endings: tuple[str, ...]
    text: bool = True
    """Whether a file is a text, which may be packed."""
    whole: bool = False
    """Whether one file may contain all tables."""
    reader: str | None = None
    """The module whose `read(file, reading, table)` reads it without Spark, if one does."""


FILE_FORMATS = (
    FileFormat(endings=(".csv",), reader="privtab.state.read_csv"),
    FileFormat(endings=(".json",), whole=True, reader="privtab.state.read_json"),
    FileFormat(endings=(".jsonl", ".ndjson"), reader="privtab.state.read_json"),
    FileFormat(endings=(".orc",), text=False),
    FileFormat(endings=(".parquet",), text=False, reader="privtab.state.read_parquet"),
    FileFormat(endings=(".yaml", ".yml"), whole=True, reader="privtab.state.read_yaml"),
)

ENDINGS = tuple(ending for f in FILE_FORMATS for ending in f.endings)
_TEXTS = tuple(ending for f in FILE_FORMATS if f.text for ending in f.endings)
WHOLE = tuple(ending for f in FILE_FORMATS if f.whole for ending in f.endings)
READERS: Mapping[str, str] = {ending: f.reader for f in FILE_FORMATS if f.reader for ending in f.endings}
"""The module that reads a file without Spark, by file ending."""
LOCAL_ENDINGS = tuple(READERS)
"""The endings of files that are read without Spark: `".csv"`, `".json"`, …"""
GZIP = ".gz"
"""How the name of a packed file of texts ends, after the ending of its format."""

STATE_HELP = "A YAML or JSON file, a folder with a file for each table, a bundle, registry:URL#CHANNEL[@RELEASE], or store:URL[@MOMENT]."
"""The forms of a state, for the help of options such as `--state`."""
_ACCEPTING = re.compile(r"(?P<path>.+?)/?\?(?P<names>accept=[^?]*)", re.DOTALL)


def state_location(location: str | PathLike[str]) -> tuple[Path, frozenset[str]]:
    """The path of a state, and the names of what it may hold unread: files, tables, and columns with their table.

    >>> path, names = state_location("state/?accept=notes.xlsx&accept=grants.comment")
    >>> path.name, sorted(names)
    ('state', ['grants.comment', 'notes.xlsx'])
    """
    found = _ACCEPTING.fullmatch(fspath(location))
    if found is None:
        return Path(location), frozenset()
    given = parse_qsl(found["names"], keep_blank_values=True)
    return Path(found["path"]), frozenset(name for key, name in given if key == "accept")


def ending_of(name: str) -> tuple[str, str]:
    """The name of a file without its ending, and the ending in small letters, without that of a packed text.

    >>> ending_of("grants.csv.gz"), ending_of("grants.CSV"), ending_of("grants"), ending_of("grants.parquet.gz")
    (('grants', '.csv'), ('grants', '.csv'), ('grants', ''), ('grants.parquet', '.gz'))
    """
    path = Path(name)
    inner = Path(path.stem)
    if path.suffix == GZIP and inner.suffix.lower() in _TEXTS:
        path = inner
    return path.stem, path.suffix.lower()
