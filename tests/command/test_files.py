from __future__ import annotations

import json
from pathlib import Path

import pytest

from privtab.base.errors import FileError
from privtab.base.staged import write_file
from privtab.command._files import MANIFEST, write_outputs


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}


def test_stale_outputs_go_and_foreign_files_stay(tmp_path: Path) -> None:
    write_outputs(tmp_path, {"a/1": {"a/1/x": b"1", "a/1/rego/y": b"2"}, "b/1": {"b/1/x": b"3"}}, complete=True)
    (tmp_path / "a" / "1" / "mine.txt").write_text("mine", encoding="utf-8")
    write_outputs(tmp_path, {"a/1": {"a/1/x": b"new"}}, complete=True)
    assert files(tmp_path) == {"a/1/x", "a/1/mine.txt"}
    assert (tmp_path / "a" / "1" / "x").read_bytes() == b"new"
    assert not (tmp_path / "b").exists(), "folders that were emptied are gone"
    assert not (tmp_path / "a" / "1" / "rego").exists()


def test_writing_a_part_keeps_the_rest(tmp_path: Path) -> None:
    write_outputs(tmp_path, {"a/1": {"a/1/x": b"1", "a/1/y": b"2"}, "b/1": {"b/1/x": b"3"}}, complete=True)
    write_outputs(tmp_path, {"a/1": {"a/1/x": b"1"}}, complete=False)
    assert files(tmp_path) == {"a/1/x", "b/1/x"}
    write_outputs(tmp_path, {"b/1": {"b/1/x": b"3"}}, complete=True)
    assert files(tmp_path) == {"b/1/x"}


def test_a_file_that_moves_to_another_group_is_not_stale(tmp_path: Path) -> None:
    write_outputs(tmp_path, {"a": {"x": b"1"}}, complete=True)
    write_outputs(tmp_path, {"b": {"x": b"2"}}, complete=True)
    assert files(tmp_path) == {"x"}


@pytest.mark.parametrize("content", ["", "nonsense", "[]", '{"outputs": 3}', '{"outputs": {"a": 3}}'])
def test_with_an_unreadable_list_nothing_is_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / "x").write_text("1", encoding="utf-8")
    (tmp_path / MANIFEST).write_text(content, encoding="utf-8")
    write_outputs(tmp_path, {"a": {"y": b"2"}}, complete=True)
    assert files(tmp_path) == {"x", "y"}


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", "inside/../../outside", ".", "folder"])
def test_a_list_that_was_tampered_with_removes_nothing_outside(tmp_path: Path, path: str) -> None:
    build = tmp_path / "build"
    (build / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("1", encoding="utf-8")
    (build / MANIFEST).write_text(json.dumps({"version": 1, "outputs": {"a": [path]}}), encoding="utf-8")
    write_outputs(build, {"b": {"y": b"2"}}, complete=True)
    assert (tmp_path / "outside").exists()
    assert (build / "folder").is_dir()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "x"
    write_file(target, b"old")
    reader = target.open("rb")
    write_file(target, b"new and longer")
    assert reader.read() == b"old", "who had it open still reads the old one"
    reader.close()
    assert target.read_bytes() == b"new and longer"
    assert target.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in target.parent.iterdir()] == ["x"]


def test_a_failed_write_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        write_file(tmp_path / "folder", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
