"""The files of a state without some of their rows: formats, order and comments stay where the file allows it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from privtab.state import TABLE_COLUMNS, RawState, row_text

Gone: TypeAlias = Mapping[str, Collection[int]]
"""Numbers of left-out rows by table, from 1."""
_BEFORE = re.compile(r"\s*-\s+")
_AFTER = re.compile(r"\s*(?:#.*)?")


def is_edited(path: Path) -> bool:
    """Return whether `trimmed` edits the files of a state: no files that are packed, in parts, or have a row on each line."""
    files = [path] if path.is_file() else [file for file in path.iterdir() if not file.name.startswith((".", "_"))]
    if any(
        file.suffix.lower() in (".gz", ".jsonl", ".ndjson") or (file.is_dir() and file.suffix != ".parquet")
        for file in files
    ):
        return False
    return path.is_file() or not any(f.suffix == ".json" and f.read_bytes().lstrip().startswith(b"{") for f in files)


def trimmed(path: Path, raw: RawState, gone: Gone) -> dict[str, bytes]:
    """The files of a state without some rows, by name within its folder; one with an empty name if the state is one file.

    A file that cannot be edited in place is written anew, without comments. Only files of tables are among them.
    """
    if path.is_file():
        return {"": _of_file(path, raw, gone, None)}
    files = {
        file.stem: file
        for file in sorted(path.iterdir())
        if file.suffix.lower() in (".parquet", *_TRIMMERS) and file.stem in TABLE_COLUMNS
    }
    return {
        file.name: _of_file(file, raw, gone, table) if gone.get(table) else file.read_bytes()
        for table, file in files.items()
    }


def _of_file(file: Path, raw: RawState, gone: Gone, table: str | None) -> bytes:
    suffix = file.suffix.lower()
    content = file.read_bytes()
    if suffix == ".parquet":
        return _parquet(file, gone[str(table)])
    trim = _TRIMMERS.get(suffix, _json if content.decode("utf-8-sig").lstrip()[:1] in {"{", "["} else _yaml)
    found = trim(content, gone, table)
    return _anew(raw, gone, table) if found is None else found


def _csv(content: bytes, gone: Gone, table: str | None) -> bytes:
    text = content.decode("utf-8-sig")
    lines = list(io.StringIO(text, newline=""))
    rows, start, number = csv.reader(iter(lines), strict=True), 0, -1
    kept: list[str] = []
    for cells in rows:
        number += bool(cells)
        if not cells or number not in gone[str(table)]:
            kept += lines[start : rows.line_num]
        start = rows.line_num
    return "".join(kept).encode()


def _json(content: bytes, gone: Gone, table: str | None) -> bytes:
    text = content.decode("utf-8-sig")
    value = json.loads(text)
    tables = value if isinstance(value, dict) else {table: value}
    for name, rows in tables.items():
        if rows:
            rows[:] = [row for number, row in enumerate(rows, 1) if number not in gone.get(str(name), ())]
    indent = re.search(r"\n( +)\S", text)
    style: dict[str, Any] = {"indent": len(indent[1])} if indent else {}
    return (json.dumps(value, ensure_ascii=False, **style) + "\n" * text.endswith("\n")).encode()


def _parquet(file: Path, gone: Collection[int]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    rows = parquet.read_table(file)
    target = io.BytesIO()
    parquet.write_table(rows.take(pa.array([n for n in range(len(rows)) if n + 1 not in gone], pa.int64())), target)
    return target.getvalue()


def _yaml(content: bytes, gone: Gone, table: str | None) -> bytes | None:
    text = content.decode("utf-8-sig")
    lines = text.splitlines(keepends=True)
    if len(lines) != text.count("\n") + (not text.endswith("\n")):
        return None  # other breaks of lines than the parser's
    dropped: set[int] = set()
    for name, rows in _tables(yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), table):
        for number in gone.get(name, ()):
            found = _own_lines(rows.value[number - 1], lines)
            if found is None:
                return None
            dropped.update(found)
    return "".join(line for number, line in enumerate(lines) if number not in dropped).encode()


_TRIMMERS = {".csv": _csv, ".json": _json, ".yaml": _yaml, ".yml": _yaml}
"""Leave rows out of a file, by its ending."""


def _tables(root: Node | None, table: str | None) -> Iterator[tuple[str, SequenceNode]]:
    """The lists of rows in a file, by table."""
    if isinstance(root, SequenceNode) and table is not None:
        yield table, root
    elif isinstance(root, MappingNode):
        yield from ((key.value, rows) for key, rows in root.value if isinstance(rows, SequenceNode))


def _own_lines(row: Node, lines: list[str]) -> range | None:
    """The lines on which nothing but a row stands, and comments."""
    start, end = row.start_mark, _last(row).end_mark
    if end.line >= len(lines):
        return None
    first, last = lines[start.line], lines[end.line]
    alone = _BEFORE.fullmatch(first[: start.column]) and _AFTER.fullmatch(last[end.column :].rstrip("\r\n"))
    return range(start.line, end.line + 1) if alone else None


def _last(node: Node) -> Node:
    """The part of a node with which it ends; the end of a block is the end of its last value."""
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        found = node.value[-1]
        node = found[1] if isinstance(found, tuple) else found
    assert isinstance(node, ScalarNode | CollectionNode)
    return node


def _anew(raw: RawState, gone: Gone, table: str | None) -> bytes:
    """The rows that are left as YAML, one on each line."""
    lines: list[str] = []
    for name, rows in raw.rows.items():
        if table in (None, name):
            left = [row for row in rows if row.number not in gone.get(name, ())]
            lines.append(f"{name}:" if left else f"{name}: []")
            lines += [f"- {row_text(name, row.cells).removeprefix(f'{name}:')}" for row in left]
    return "".join(f"{line}\n" for line in lines).encode()
