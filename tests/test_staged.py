from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privtab._staged import write, write_all
from privtab.errors import BundleWriteError


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as readers:
        read = readers.submit(pipe.read_bytes)
        write(pipe, b"content")
        assert read.result(timeout=30) == b"content"
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    write(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_many_files_are_written_to_their_folders(tmp_path: Path) -> None:
    files = {tmp_path / f"{n % 3}" / f"file_{n}": str(n).encode() for n in range(50)}
    write_all(files)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_the_first_of_many_files_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    files = {tmp_path / "a": b"1", tmp_path / "file" / "b": b"2", tmp_path / "file" / "c": b"3"}
    with pytest.raises(BundleWriteError, match=r"cannot write .*file/b"):
        write_all(files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "file"]
