"""Configuration files and folders of a state's sources, and what sources are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privtab import strict_json
from privtab.errors import FileError, UsageError
from privtab.state.nodes import TABLES
from privtab.state.read_parquet import table_format

SUFFIXES = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".orc": "orc", ".jsonl": "json", ".ndjson": "json"}


def read_configuration(path: Path) -> Mapping[str, Any]:
    """A configuration file; raises FileError where there is none, UsageError where it is no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    value: object
    if path.suffix == ".json":
        try:
            value = strict_json.loads(text)
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}") from error
    else:
        import yaml

        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} is no configuration: it must be a mapping with `tables`")
    return value


def folder_sources(folder: Path, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """A source for each table that has a file, or a folder that Spark wrote."""
    entries = sorted(folder.iterdir())
    for table in TABLES:
        found = [
            e for e in entries if e.stem == table and (e.suffix.lower() in SUFFIXES or (e.is_dir() and not e.suffix))
        ]
        if len(found) > 1:
            both = " and ".join(f"`{e.name}`" for e in found)
            problems.append(f"{table}: has {len(found)} files: {both} (keep one of them)")
        elif found:
            format_ = table_format(found[0]) or SUFFIXES.get(found[0].suffix.lower(), "parquet")
            options = {"multiLine": "true"} if found[0].suffix == ".json" else {}
            yield table, {"format": format_, "path": str(found[0].resolve()), "options": options, "name": found[0].name}


def label_of(table: str, given: Mapping[str, Any]) -> str:
    """What a source is called, without options that may hold secrets."""
    for key in ("path", "table"):
        if given.get(key) is not None:
            return str(given[key])
    options = given.get("options") or {}
    return str(options.get("dbtable") or (f"{given.get('format', 'a query')} for {table}"))


def listed(names: Sequence[str]) -> str:
    """Names as messages list them."""
    return ", ".join(f"`{name}`" for name in names) or "none"


def wrong_count(number: int) -> str:
    """`1 thing is wrong`, `3 things are wrong`."""
    return "1 thing is wrong" if number == 1 else f"{number} things are wrong"
