from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from privtab import pipeline
from privtab.base import user_cache
from privtab.ir.nodes import Program

FORGED = "f" * 16


@pytest.fixture(scope="module")
def program() -> Program:
    return pipeline.load_program("cdap/final")


@pytest.fixture
def revisions_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of revisions, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "privtab" / "revisions.json"


def forge(revisions_file: Path) -> None:
    revisions_file.write_text(json.dumps(dict.fromkeys(json.loads(revisions_file.read_text()), FORGED)))


def test_a_cached_revision_is_that_of_the_bundle_and_is_not_computed_again(
    revisions_file: Path, program: Program
) -> None:
    revision = pipeline.policy_artifacts(program).revision
    assert pipeline.policy_revision(program) == revision
    assert list(json.loads(revisions_file.read_text()).values()) == [revision]
    forge(revisions_file)
    assert pipeline.policy_revision(program) == FORGED, "the file is not read"


def test_another_program_or_another_code_has_its_own_revision(
    revisions_file: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = pipeline.policy_revision(program)
    forge(revisions_file)
    reading = pipeline.load_program("cdap/final", readings={"namespace/list": "parent"})
    assert pipeline.policy_revision(reading) == pipeline.policy_artifacts(reading).revision
    folder = revisions_file.parent / "templates"
    folder.mkdir()
    (folder / "rows.rego.j2").write_text("")
    monkeypatch.setattr("privtab.base.resources.templates_folder", lambda: folder)
    assert user_cache.revision_of(program, lambda: revision) == revision
    forge(revisions_file)
    os.utime(folder / "rows.rego.j2", (1, 1))
    assert user_cache.revision_of(program, lambda: revision) == revision


@pytest.mark.skipif(sys.platform == "win32", reason="has no such permissions")
def test_revisions_that_another_user_could_have_written_do_not_count(revisions_file: Path, program: Program) -> None:
    revision = pipeline.policy_revision(program)
    assert revisions_file.stat().st_mode & 0o777 == 0o600
    forge(revisions_file)
    revisions_file.chmod(0o620)
    assert pipeline.policy_revision(program) == revision
    forge(revisions_file)
    if os.geteuid() == 0:
        os.chown(revisions_file, 65534, -1)
        assert pipeline.policy_revision(program) == revision
        forge(revisions_file)
    elsewhere = revisions_file.parent / "elsewhere"
    revisions_file.rename(elsewhere)
    revisions_file.symlink_to(elsewhere)
    assert pipeline.policy_revision(program) == revision


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{", b'{"a": 1}', b"[" * 100_000])
def test_a_damaged_cache_is_replaced(revisions_file: Path, program: Program, content: bytes) -> None:
    revisions_file.parent.mkdir()
    revisions_file.write_bytes(content)
    revision = pipeline.policy_revision(program)
    assert revision in json.loads(revisions_file.read_text()).values()


def test_a_cached_word_that_is_no_revision_does_not_count(revisions_file: Path, program: Program) -> None:
    revision = pipeline.policy_revision(program)
    revisions_file.write_text(revisions_file.read_text().replace(revision, "\\u001b[2Jdeadbeef"))
    assert pipeline.policy_revision(program) == revision


def test_without_a_cache_folder_revisions_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    revision = pipeline.policy_artifacts(program).revision
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert pipeline.policy_revision(program) == revision

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr("privtab.base.user_cache.folder", homeless)
    assert pipeline.policy_revision(program) == revision


def test_the_latest_revisions_are_kept(revisions_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_cache, "KEPT", 3)
    for number in range(5):
        user_cache.revision_of(number, lambda: FORGED)
    assert len(json.loads(revisions_file.read_text())) == 3
    assert user_cache.revision_of(4, lambda: "never computed") == FORGED
