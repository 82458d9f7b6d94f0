"""Every reader of bytes, on bytes that were spoilt: it ends, and says what is wrong in the way that it promises."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import generated_programs
import pyarrow
import pyarrow.parquet
import pytest
import signing_keys
import worlds
from fuzzing import LENGTHS, Target, fuzzed

from privtab import model
from privtab.base.diagnostics import render
from privtab.base.errors import BrokenBundle, FileError, PolicyError, SignatureRefused, UsageError
from privtab.base.signatures import Trust, canonical
from privtab.base.source import SourceFile
from privtab.bundle import state_bundle
from privtab.bundle.archive import packed_archive
from privtab.bundle.inspect import inspect
from privtab.bundle.sign import verify_bundle
from privtab.client._bundles import bundle_content
from privtab.ir.nodes import Program
from privtab.language import fmt, syntax
from privtab.pipeline import policy_artifacts
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import ALL_TABLES
from privtab.state.raw import TABLE_COLUMNS

PROGRAM = generated_programs.program(3)
STATE = worlds.state(PROGRAM, 3)


def rows() -> dict[str, list[dict[str, str]]]:
    """The rows of a state as files have them."""
    found: dict[str, list[dict[str, str]]] = {
        "members": [{"user": user, "of": str(entity)} for user, entity in STATE.members],
        "memberships": [{"user": user, "group": group} for user, group in STATE.memberships],
        "assignments": [
            {"principal": a.principal, "role": a.role, "scope": str(a.scope) if a.scope else ""}
            for a in STATE.assignments
        ],
        "grants": [
            {"grantee": g.grantee, "effect": g.effect, "privilege": g.privilege, "entity": str(g.entity)}
            for g in STATE.grants
        ],
        "owners": [{"entity": str(entity), "owner": owner} for entity, owner in STATE.owners],
        "service_admins": [{"user": user} for user in STATE.service_admins],
        "attributes": [{"user": "ann", "attribute": "department", "value": "hr"}],
        "entities": [{"entity": "leaf:l", "parent": "mid:t/m"}],
    }
    return {table: some[:6] for table, some in found.items()}


# --- policies --------------------------------------------------------------------------------------------------------


def read_policy(text: bytes) -> None:
    """Findings with places, or a policy; never an exception."""
    file = SourceFile.decode(text, "p.yaml")
    tables, found = syntax.read_policy(file)
    if tables is not None:
        _, more = model.resolve(tables)
        found = [*found, *more]
    for finding in found:
        assert 1 <= finding.span.line <= len(file.starts)
    render(found, {"p.yaml": file.text})
    fmt.format_source(file)


@LENGTHS
def test_policies(seconds: float | None) -> None:
    fuzzed([worlds.policy(seed).encode() for seed in range(4)], read_policy, seconds)


# --- states ----------------------------------------------------------------------------------------------------------


def read_state(path: Path) -> Target:
    """Rows and findings, or words about the file."""

    def read(text: bytes) -> None:
        path.write_bytes(text)
        try:
            raw = load_raw_state(path if path.stem == "state" else path.parent)
        except (UsageError, FileError):
            return
        _, findings = validate(PROGRAM, raw)
        "".join(finding.render() for finding in findings).encode()
        json.dumps([finding.to_json() for finding in findings], ensure_ascii=False)
        for row in (row for table in raw.rows.values() for row in table):
            for cell in row.cells.values():
                assert cell
                cell.encode()

    return read


def csv_text(table: str) -> bytes:
    names = TABLE_COLUMNS[table].all
    lines = [",".join(names), *(",".join(f'"{row.get(name, "")}"' for name in names) for row in rows()[table])]
    return "\n".join(lines).encode()


def parquet(table: str) -> bytes:
    sink = io.BytesIO()
    columns = {
        name: pyarrow.array([row.get(name) for row in rows()[table]], pyarrow.string())
        for name in TABLE_COLUMNS[table].all
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def yaml_text() -> bytes:
    lines = []
    for table, some in rows().items():
        lines += [f"{table}:", *(f"  - {json.dumps(row, ensure_ascii=False)}" for row in some)]
    return "\n".join(lines).encode()


STATES: dict[str, Callable[[], bytes]] = {
    "state.yaml": yaml_text,
    "state.json": lambda: json.dumps(rows(), ensure_ascii=False).encode(),
    "grants.csv": lambda: csv_text("grants"),
    "assignments.csv": lambda: csv_text("assignments"),
    "grants.parquet": lambda: parquet("grants"),
}


@LENGTHS
@pytest.mark.parametrize("name", STATES)
def test_states(name: str, seconds: float | None, tmp_path: Path) -> None:
    assert set(rows()) == set(ALL_TABLES)
    fuzzed([STATES[name]()], read_state(tmp_path / name), seconds)


# --- bundles and signatures ------------------------------------------------------------------------------------------

KEY = signing_keys.pair("ES256")
TRUST = Trust.of([KEY.public])


def bundles(program: Program) -> list[bytes]:
    unsigned = [policy_artifacts(program).bundle(), state_bundle(program, STATE)]
    return [*unsigned, *(KEY.signing(sequence=3).sign(bundle) for bundle in unsigned)]


def read_bundle(bundle: bytes) -> None:
    """What is in a bundle, or that it is broken or not signed."""
    for look in (
        lambda: inspect(bundle, TRUST),
        lambda: verify_bundle(bundle, TRUST),
        lambda: bundle_content(bundle, lambda document: document),
    ):
        try:
            look()
        except (BrokenBundle, SignatureRefused, PolicyError):
            continue


@LENGTHS
def test_bundles(seconds: float | None) -> None:
    fuzzed(bundles(PROGRAM), read_bundle, seconds)


@LENGTHS
def test_archives_in_bundles(seconds: float | None) -> None:
    tars = [gzip.decompress(bundle) for bundle in bundles(PROGRAM)]
    fuzzed(tars, lambda tar: read_bundle(gzip.compress(tar, compresslevel=1)), seconds)


@LENGTHS
def test_files_in_bundles(seconds: float | None) -> None:
    """Each file of a bundle, in an archive that is whole."""
    inside = [signing_keys.files(bundle) for bundle in bundles(PROGRAM)]
    seeds = [
        json.dumps([number, name]).encode() + b"\n" + files[name]
        for number, files in enumerate(inside)
        for name in files
    ]

    def read(text: bytes) -> None:
        head, _, changed = text.partition(b"\n")
        try:
            number, name = json.loads(head)
            files = inside[number] | {name: changed}
            tar = packed_archive(files)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, tarfile.TarError):
            return
        read_bundle(tar)

    fuzzed(seeds, read, seconds)


@LENGTHS
def test_signatures(seconds: float | None) -> None:
    files = signing_keys.files(KEY.signing(sequence=3).sign(policy_artifacts(PROGRAM).bundle()))

    def read(text: bytes) -> None:
        with contextlib.suppress(SignatureRefused):
            TRUST.signed(text)
        with contextlib.suppress(ValueError):
            canonical(text)

    fuzzed([files[".signatures.json"], files[".manifest"]], read, seconds)


def test_a_reader_that_breaks_is_found() -> None:
    def breaks(text: bytes) -> None:
        if not text.startswith(b"abc"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fuzzed([b"abc"], breaks, None)
