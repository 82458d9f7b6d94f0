"""Whatever is added to the files of a state is read, or it is an error that names it: no decision changes in silence.

A generator writes a valid state in any mixture of formats, and adds one thing that nothing reads, or that is read otherwise.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from seeds import seeds

from privtab.base.errors import UsageError
from privtab.ir.nodes import Program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, load_raw_state, validate
from privtab.state.nodes import State
from privtab.state.raw import TABLE_COLUMNS

Rows = list[dict[str, str]]
Tables = dict[str, Rows]
STATE: Tables = {
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "SELECT", "entity": "schema:l/s"},
        {"grantee": "group:suspended", "effect": "deny", "privilege": "SELECT", "entity": "schema:l/s"},
        {"grantee": "role:clerk", "effect": "allow", "privilege": "MODIFY", "entity": "table:l/s/Mein Tisch"},
    ],
    "memberships": [{"user": "ann", "group": "suspended"}, {"user": "Ann Smith", "group": "Umsatz / EMEA"}],
    "assignments": [{"principal": "user:ann", "role": "clerk"}, {"principal": "group:suspended", "role": "clerk"}],
    "members": [{"user": "ann", "of": "lake:l"}],
    "owners": [{"entity": "table:l/s/t", "owner": "user:каролина"}],
    "service_admins": [{"user": "root"}],
}
TEXTS = ("csv", "json", "jsonl", "ndjson", "yaml")


def text_of(rows: Rows, kind: str) -> bytes:
    """The rows of a table in one of the formats of texts."""
    if kind == "csv":
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerows([names, *([row.get(name, "") for name in names] for row in rows)])
        return text.getvalue().encode()
    if kind == "yaml":
        return yaml.safe_dump(rows, allow_unicode=True, width=10_000).encode()
    if kind == "json":
        return json.dumps(rows).encode()
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def write_file(file: Path, rows: Rows, kind: str) -> Path:
    if kind == "parquet":
        names = list(dict.fromkeys(name for row in rows for name in row))
        pyarrow.parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)
        return file
    content = text_of(rows, kind)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def write_table(folder: Path, table: str, rows: Rows, rnd: Random) -> Path:
    """A table as a file, a packed one, or a folder of parts with what Spark writes beside them."""
    kind = rnd.choice([*TEXTS, "parquet"])
    packed = "" if kind == "parquet" else rnd.choice(["", ".gz"])
    if rnd.random() < 0.6:
        return write_file(folder / f"{table}.{kind}{packed}", rows, kind)
    kind = "jsonl" if kind == "json" else kind  # Spark calls files of rows on lines `.json`
    ending = "json" if kind == "jsonl" else kind
    parts = folder / rnd.choice([table, f"{table}.{ending}"])
    parts.mkdir()
    (parts / "_SUCCESS").touch()
    for number, row in enumerate(rows):
        file = write_file(parts / f"part-{number:05}-c000.{ending}{packed}", [row], kind)
        (parts / f".{file.name}.crc").write_bytes(b"crc")
    return parts


def write_state(folder: Path, tables: Tables, rnd: Random) -> Path:
    """The state as one file or as a folder."""
    if rnd.random() < 0.3:
        kind = rnd.choice(["yaml", "json"])
        file = folder / f"state.{kind}{rnd.choice(['', '.gz'])}"
        text = (yaml.safe_dump(tables, allow_unicode=True) if kind == "yaml" else json.dumps(tables)).encode()
        file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
        return file
    folder /= "state"
    folder.mkdir()
    for table, rows in tables.items():
        write_table(folder, table, rows, rnd)
    return folder


# --- what is added: each returns what an error must name ---


def a_file(folder: Path, rnd: Random) -> str:
    """A file or a folder that no table reads."""
    table = rnd.choice(["memberships", "grants", "notes", "README", "entity"])
    name = rnd.choice(
        [f"{table}.xlsx", f"{table}.tsv", f"{table.title()}.csv", f"{table[:-1]}.csv", f"{table} (1).csv", f"{table}.bak",
         f"{table}.csv.bz2", f"{table}.csv.zip", f"{table}.csv~", f"Copy of {table}.json", f"{table}.orc", f"{table}.snappy.parquet"]
    )  # fmt: skip
    if rnd.random() < 0.2:
        (folder / name).mkdir()
    else:
        (folder / name).write_text("user,group\nann,suspended\n")
    return name


def a_renamed_table(folder: Path, rnd: Random) -> str:
    """A table whose file has another name than before."""
    file = rnd.choice(sorted(folder.iterdir()))
    name = rnd.choice(
        [file.name.title(), f"{file.name}.old", f"{file.name}_", f"x{file.name}", file.name.replace("s", "")]
    )
    file.rename(folder / name)
    return name


def a_second_file(folder: Path, rnd: Random) -> str:
    """A table in two files of different forms."""
    file = rnd.choice(sorted(folder.iterdir()))
    table = file.name.partition(".")[0]
    for ending in rnd.sample(["csv", "json", "ndjson", "yml"], 4):
        if not (folder / f"{table}.{ending}").exists():
            write_file(
                folder / f"{table}.{ending}", STATE[table][:1], {"ndjson": "jsonl", "yml": "yaml"}.get(ending, ending)
            )
            return f"{table}.{ending}"
    raise AssertionError


def something_in_parts(folder: Path, rnd: Random) -> str | None:
    """Something that is no part in the folder of a table: what it holds would vanish, or a column of a partition would."""
    found = [entry for entry in sorted(folder.iterdir()) if entry.is_dir()]
    if not found:
        return None
    parts = rnd.choice(found)
    name = rnd.choice(
        ["until=2020-01-01", "notes.txt", "part-9.csv.bz2", "part-00009", "part-9.xlsx", "_group=eve", "more"]
    )
    if "=" in name or name == "more":
        (parts / name).mkdir()
        shutil.copy(next(file for file in sorted(parts.iterdir()) if file.name.startswith("part-")), parts / name)
    else:
        (parts / name).write_text("user,group\nann,suspended\n")
    return name


def an_empty_file(folder: Path, rnd: Random) -> str | None:
    """A table whose export failed: its file is empty, or its folder has no parts."""
    entry = rnd.choice(sorted(folder.iterdir()))
    if entry.is_dir():
        for part in entry.glob("part-*"):
            part.unlink()
    else:
        entry.write_bytes(gzip.compress(b"") if entry.suffix == ".gz" else b"")
    return entry.name


def half_a_file(folder: Path, rnd: Random) -> str | None:
    """A packed file without its end."""
    packed = sorted(folder.rglob("*.gz"))
    if not packed:
        return None
    file = rnd.choice(packed)
    file.write_bytes(file.read_bytes()[:-9])
    return file.name


OF_FOLDERS = (a_file, a_renamed_table, a_second_file, something_in_parts, an_empty_file, half_a_file)


def a_column(tables: dict[str, Any], rnd: Random) -> str:
    """A column that no reader knows, in each row of a table or in one."""
    table = rnd.choice(sorted(tables))
    name = rnd.choice(["revoked", "until_", "Until", "valid_to", "comment", "deny", "user ", "Group", "priviledge"])
    value = rnd.choice(["true", "2020-01-01T00:00:00Z", "x"])
    rows = tables[table] if rnd.random() < 0.5 else [rnd.choice(tables[table])]
    for row in rows:
        row[name] = value
    return name


def an_edge_of_a_window(tables: dict[str, Any], rnd: Random) -> str:
    """An end of a row that is no moment."""
    table = rnd.choice(["grants", "memberships", "assignments", "owners"])
    text = rnd.choice(["2020-01-01", "tomorrow", "2020-01-01T00:00:00", "0", " 2020-01-01T00:00:00Z"])
    rnd.choice(tables[table])["until"] = text
    return text


def a_spoilt_name(tables: dict[str, Any], rnd: Random) -> str:
    """A character that nobody sees within a name, or a blank beside it."""
    table = rnd.choice(sorted(tables))
    row = rnd.choice(tables[table])
    column = rnd.choice([name for name in row if name not in ("effect", "privilege")])
    text = row[column]
    if rnd.random() < 0.4:
        sign = rnd.choice([" ", "\u3000", "\u00a0"])
        start = text.find(":") + 1
        row[column] = rnd.choice([f"{sign}{text}", f"{text}{sign}", f"{text[:start]}{sign}{text[start:]}"])
        if "/" in text and column in ("entity", "of"):
            row[column] = text.replace("/", rnd.choice([f"{sign}/", f"/{sign}"]), 1)
    else:
        sign = rnd.choice("\u200b\u202e\u00ad\ufeff\u2060\u200d\ufe0f\U000e0041\u3164\u034f\u2028\u180e\u115f\u2800\t")
        at = rnd.randrange(len(text) + 1)
        row[column] = f"{text[:at]}{sign}{text[at:]}"
    return ""


OF_TABLES = (a_column, an_edge_of_a_window, a_spoilt_name)


def a_table(tables: dict[str, Any], rnd: Random) -> str:
    """A table that no state has."""
    name = rnd.choice(["Memberships", "membership", "denials", "groups", "comments", "grant"])
    tables[name] = rnd.choice([[{"user": "ann", "group": "suspended"}], [], None, "x", {"ann": "suspended"}])
    return name


def another_type(tables: dict[str, Any], rnd: Random) -> str:
    """A value of another type in the place of rows, a row or a cell."""
    table = rnd.choice(sorted(tables))
    value = rnd.choice([True, 1.5, ["ann"], {"ann": "x"}, [["ann"]], "ann"])
    match rnd.randrange(3):
        case 0:
            tables[table] = {"ann": "x"} if isinstance(value, list | str) else value
        case 1:
            tables[table] = [*tables[table], ["ann"] if isinstance(value, dict) else value]
        case _:
            row = tables[table][0]
            row[next(iter(row))] = ["ann"] if isinstance(value, int | float | str) else value
    return table


OF_WHOLE_FILES = (a_table, another_type, a_column, an_edge_of_a_window, a_spoilt_name)


def outcome(program: Program, path: Path | str) -> tuple[State | None, tuple[StateFinding, ...], str]:
    """The state, its findings, and all that is said."""
    try:
        state, findings = validate(program, load_raw_state(path))
    except UsageError as error:
        return None, (), str(error)
    return state, findings, "\n".join(f"{f.place} {f.message} {f.help} {dict(f.row)}" for f in findings)


def same_by_columns(program: Program, path: Path, state: State | None, findings: tuple[StateFinding, ...]) -> None:
    """The reading by columns says the same."""
    large, raw.LARGE = raw.LARGE, 1
    try:
        again, found, _ = outcome(program, path)
    finally:
        raw.LARGE = large
    assert again == state
    assert Counter((f.code, f.severity, f.message) for f in found) == Counter(
        (f.code, f.severity, f.message) for f in findings
    )


def check(program: Program, seed: int) -> str:
    """One case; returns what was added."""
    rnd = Random(seed)
    expected, _ = validate(program, from_tables(STATE, "state"))
    with tempfile.TemporaryDirectory() as folder:
        tables: Tables = {table: [dict(row) for row in rows] for table, rows in STATE.items()}
        before = write_state(Path(folder), tables, Random(seed))
        state, findings, said = outcome(program, before)
        assert (state, findings) == (expected, ()), said
        is_folder = before.is_dir()
        shutil.rmtree(before) if is_folder else before.unlink()
        adding: Callable[[Any, Random], str | None]
        if is_folder and rnd.random() < 0.5:
            adding = rnd.choice(OF_FOLDERS)
            path = write_state(Path(folder), tables, Random(seed))
            named = adding(path, rnd)
        else:
            adding = rnd.choice(OF_TABLES if is_folder else OF_WHOLE_FILES)
            named = adding(tables, rnd)
            path = write_state(Path(folder), tables, Random(seed))
        if named is None:
            return ""
        state, findings, said = outcome(program, path)
        if rnd.random() < 0.3:
            same_by_columns(program, path, state, findings)
        errors = [finding for finding in findings if finding.severity == "error"]
        assert state is None or errors, f"{adding.__name__} {named}: nothing was said"
        assert named in said or "not all of its files have the column `until`" in said, (adding.__name__, named, said)
        if adding in (
            a_file,
            a_renamed_table,
            a_second_file,
            something_in_parts,
            an_empty_file,
            half_a_file,
            a_column,
            a_table,
        ):
            assert state is None or any(error.stops(program) for error in errors), (adding.__name__, said)
        accepted = f"{path}?accept={named}"
        if adding is a_file and not (path / named).is_dir():
            assert outcome(program, accepted)[0] == expected
    return adding.__name__


@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_what_is_added_is_named(program: Program, seed: int) -> None:
    for number in range(seed * 10, seed * 10 + 10):
        check(program, number)


@pytest.mark.long
def test_what_is_added_is_named_in_many_states(program: Program, search_seed: int) -> None:
    done = Counter(check(program, seed) for seed in range(search_seed, search_seed + 10_000))
    assert done.keys() >= {adding.__name__ for adding in (*OF_FOLDERS, *OF_TABLES, *OF_WHOLE_FILES)}
    assert all(set(row) <= set(TABLE_COLUMNS[table].all) for table, rows in STATE.items() for row in rows)
