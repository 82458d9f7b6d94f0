from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from privtab import pipeline
from privtab.base.request import Entity
from privtab.bundle import state_bundle
from privtab.pipeline import policy_artifacts
from privtab.state.nodes import Assignment, Grant, State

NAMES = ("cdap/final", "gravitino/1.1.0", "streams/teracloud")
ONE_HASH = """
import hashlib, sys
from privtab import pipeline
from privtab.pipeline import policy_artifacts
for name in sys.argv[1:]:
    print(name, hashlib.sha256(policy_artifacts(pipeline.load_program(name)).bundle()).hexdigest())
"""


def files(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as tar:
        return {m.name: content.read() for m in tar.getmembers() if (content := tar.extractfile(m))}


@pytest.mark.slow
def test_bytes_depend_on_neither_order_nor_process() -> None:
    seen = set()
    for seed, names in (("1", NAMES), ("2", NAMES[::-1])):
        done = subprocess.run(
            [sys.executable, "-c", ONE_HASH, *names],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(tuple(sorted(done.stdout.splitlines())))
    assert len(seen) == 1


@pytest.mark.parametrize("name", NAMES)
def test_policy_and_state_share_no_root(name: str) -> None:
    program = pipeline.load_program(name)
    policy = json.loads(files(policy_artifacts(program).bundle())[".manifest"])
    state = json.loads(files(state_bundle(program, State()))[".manifest"])
    roots = [*policy["roots"], *state["roots"]]
    assert not [(a, b) for a in roots for b in roots if a != b and f"{a}/".startswith(f"{b}/")]
    assert len(set(roots)) == 3
    assert policy["metadata"]["version"] == program.version


def test_the_revision_is_that_of_the_content() -> None:
    final, revised = (pipeline.load_program(f"cdap/{v}") for v in ("final", "revised"))
    first, again, other = policy_artifacts(final), policy_artifacts(final), policy_artifacts(revised)
    assert first.revision == again.revision != other.revision
    manifest = json.loads(files(first.bundle())[".manifest"])
    data = json.loads(files(first.bundle())["privtab_program/cdap/data.json"])
    assert manifest["revision"] == data["revision"] == first.revision


def test_another_name_has_packages_of_its_own_and_the_same_state() -> None:
    program = pipeline.load_program("cdap/final")
    shadow = policy_artifacts(program, "cdap_next")
    assert all(path.startswith("privtab/cdap_next/") for path in shadow.modules)
    text = "\n".join(shadow.modules.values())
    assert "data.privtab_state.cdap" in text
    assert "data.privtab_state.cdap_next" not in text
    assert "data.privtab.cdap." not in text
    assert "example_system" not in text


def test_rows_of_a_state_in_another_order_give_the_same_bytes() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    table = Entity("table", "m/c/s/t")
    grants = tuple(
        Grant(grantee=f"role:r{n}", effect="allow", privilege="SELECT_TABLE", entity=table) for n in range(9)
    )
    assignments = tuple(Assignment(principal=f"user:u{n % 3}", role=f"r{n}") for n in range(9))
    first = state_bundle(program, State(grants=grants, assignments=assignments))
    second = state_bundle(program, State(grants=grants[::-1], assignments=assignments[::-1]))
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()


def test_the_archive_contains_no_owner_and_no_time(tmp_path: Path) -> None:
    with tarfile.open(
        fileobj=io.BytesIO(policy_artifacts(pipeline.load_program("cdap/final")).bundle()), mode="r:gz"
    ) as tar:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in tar.getmembers()} == {
            (0, 0, 0, "", "", 0o644)
        }
