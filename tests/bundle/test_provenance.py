"""What bundles say of where they come from, and that the same input gives the same bytes wherever and whenever."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import signing_keys

from privtab import __version__
from privtab.bundle.inspect import inspect
from privtab.bundle.pack import Provenance
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import load_raw_state, validate
from privtab_server.registry.deploy.rollout import pack

POLICY = """
privtab: 1
system: shop
version: '1'
entities: {shop: {box:}}
privileges: [LOOK]
semantics: {inheritance: down}
tables: {box: {look: LOOK (box), "öffnen": LOOK (shop)}}
""".replace('"öffnen"', "open")
STATE = """
grants:
  - {grantee: "user:zoë", effect: allow, privilege: LOOK, entity: "shop:straße"}
  - {grantee: "user:ann", effect: allow, privilege: LOOK, entity: "shop:s"}
"""


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "t@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607  (whichever git there is)
        cwd=folder,
        env=os.environ | who,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a policy and a state, each with a commit of its own."""
    folder = tmp_path / "repository"
    (folder / "tables").mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in (("shop.yaml", POLICY), ("state.yaml", STATE), ("README", "About\n")):
        (folder / "tables" / name).write_text(text, encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", name)
    return folder


def test_the_commit_is_the_one_that_changed_the_file(repository: Path) -> None:
    policy = repository / "tables" / "shop.yaml"
    found = Provenance.of(policy)
    assert found.commit == git(repository, "log", "-1", "--format=%H", "--", "tables/shop.yaml")
    assert found.commit != git(repository, "rev-parse", "HEAD")
    assert found.sources == {"shop.yaml": hashlib.sha256(policy.read_bytes()).hexdigest()}
    assert not found.dirty
    (repository / "tables" / "README").write_text("More\n")
    assert Provenance.of(policy) == found, "another file is no change of this one"
    policy.write_text(POLICY + "# more\n", encoding="utf-8")
    assert Provenance.of(policy).dirty
    assert Provenance.of(policy).commit == found.commit
    assert Provenance.of(policy).sources != found.sources


@pytest.mark.parametrize("sharded", [False, True])
def test_a_deployment_says_where_its_state_comes_from(repository: Path, sharded: bool) -> None:
    policy, state = (repository / "tables" / name for name in ("shop.yaml", "state.yaml"))
    program = load_program(policy)
    rows, _ = validate(program, load_raw_state(state))
    packed = pack(program, policy_artifacts(program, sharded=sharded), state=(rows, state), sharded=sharded)
    of_state = packed.shards["people"] if packed.shards else packed.state
    assert of_state is not None
    found = Provenance.of(state, policy="shop/1").to_json()
    assert inspect(of_state).provenance == found
    assert found["git"]["commit"] == git(repository, "log", "-1", "--format=%H", "--", "tables/state.yaml")


def test_without_a_repository_there_is_no_commit(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "shop.yaml").write_text(POLICY, encoding="utf-8")
    assert Provenance.of(tmp_path / "shop.yaml").commit is None
    new = repository / "tables" / "new.yaml"
    new.write_text(POLICY, encoding="utf-8")
    assert Provenance.of(new).commit is None, "nobody committed it"


def test_without_git_there_is_no_commit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    found = Provenance.of(repository / "tables" / "shop.yaml")
    assert found.commit is None
    assert found.sources


def test_the_provenance_of_a_folder_lists_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    for name in ("grants.csv", "owners.csv", "notes.txt"):
        (folder / name).write_text(name)
    assert list(Provenance.of(folder).sources) == ["grants.csv", "owners.csv"]


def test_a_chosen_variant_is_in_the_provenance(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("x")
    report = Provenance.of(tmp_path / "p.yaml", variant="wide", readings={}).to_json()
    assert report == {
        "compiler": f"privtab {__version__}",
        "sources": {"p.yaml": hashlib.sha256(b"x").hexdigest()},
        "variant": "wide",
    }


# --- the command line, which is what builds call ---


def compiled(policy: Path, output: Path, *more: str, cwd: Path | None = None, **environment: str) -> dict[str, bytes]:
    """What `privtab compile` writes, by path."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(
        [sys.executable, "-m", "privtab", "compile", policy, "-o", output, *more],
        env=os.environ | {"PYTHONPATH": path} | environment,
        cwd=cwd,
        check=True,
        capture_output=True,
    )
    return {file.relative_to(output).as_posix(): file.read_bytes() for file in output.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    """Another folder, time zone, locale, order of sets, working directory, and a later commit elsewhere."""
    tables = repository / "tables"
    key = signing_keys.pair().write(tmp_path)[0]
    options = ("--state", "state.yaml", "--signing-key", str(key), "--signature", "sequence=3")
    once = compiled(Path("shop.yaml"), tmp_path / "one", *options, cwd=tables, PYTHONHASHSEED="1", TZ="UTC", LC_ALL="C")
    copy = tmp_path / "elsewhere" / "ünïcode copy"
    copy.parent.mkdir()
    git(tmp_path, "clone", "-q", str(repository), str(copy))
    (copy / "tables" / "README").write_text("Changed\n")
    git(copy, "commit", "-q", "-a", "-m", "elsewhere")
    os.utime(copy / "tables" / "shop.yaml", (1, 1))
    again = compiled(
        Path("tables/shop.yaml"),
        copy / "out",
        *("--state", "tables/state.yaml", *options[2:]),
        cwd=copy,
        PYTHONHASHSEED="2",
        TZ="Asia/Tokyo",
        LC_ALL="tr_TR.UTF-8",
        SOURCE_DATE_EPOCH="1",
    )
    assert {"shop/1/policy.tar.gz", "shop/1/state.tar.gz"} <= once.keys()
    assert once == again


@pytest.mark.slow
def test_bundles_contain_no_paths_and_no_times(repository: Path, tmp_path: Path) -> None:
    bundles = compiled(
        repository / "tables" / "shop.yaml", tmp_path / "out", "--state", str(repository / "tables" / "state.yaml")
    )
    origin: dict[str, Any] = {}
    for name in ("policy", "state"):
        inside = signing_keys.files(bundles[f"shop/1/{name}.tar.gz"])
        assert not any(str(tmp_path).encode() in text for text in inside.values())
        origin = manifest(bundles[f"shop/1/{name}.tar.gz"])["metadata"]["provenance"]
        assert origin["git"]["dirty"] is False
        assert len(origin["git"]["commit"]) == 40
        assert list(origin["sources"]) == [{"policy": "shop.yaml", "state": "state.yaml"}[name]]
    assert origin["policy"] == "shop/1"


@pytest.mark.slow
def test_a_comment_changes_where_it_comes_from_and_not_the_revision(repository: Path, tmp_path: Path) -> None:
    policy = repository / "tables" / "shop.yaml"
    before = manifest(compiled(policy, tmp_path / "one")["shop/1/policy.tar.gz"])
    policy.write_text(POLICY + "# a comment\n", encoding="utf-8")
    after = manifest(compiled(policy, tmp_path / "two")["shop/1/policy.tar.gz"])
    assert before["revision"] == after["revision"]
    assert before["metadata"]["provenance"] != after["metadata"]["provenance"]
    assert after["metadata"]["provenance"]["git"]["dirty"] is True


def manifest(bundle: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(signing_keys.files(bundle)[".manifest"])
    return found
