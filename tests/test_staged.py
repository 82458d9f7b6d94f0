from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from privtab.base.errors import FileError
from privtab.base.staged import staged_file, write_file, write_files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("put", [write_file, lambda path, content: write_files({path: content})])
def test_a_pipe_is_written_to_and_not_replaced(put: Callable[[Path, bytes], None], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened here, so that the test ends where nothing is written into it.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put(pipe, b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_device_is_written_to_or_refused_and_never_replaced(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.symlink_to(os.devnull)
    write_files({device: b"content"})
    with pytest.raises(FileExistsError, match="is not replaced"), staged_file(device, [b"content"]):
        pass
    assert device.is_symlink()
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(tmp_path / "socket"))
    with pytest.raises(FileError, match="is not replaced"):
        write_file(tmp_path / "socket", b"content")
    bound.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device", "socket"]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    write_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_many_files_are_written_to_their_folders(tmp_path: Path) -> None:
    files = {tmp_path / f"{n % 3}" / f"file_{n}": str(n).encode() for n in range(50)}
    write_files(files)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_the_first_of_many_files_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    files = {tmp_path / "a": b"1", tmp_path / "file" / "b": b"2", tmp_path / "file" / "c": b"3"}
    with pytest.raises(FileError, match=r"cannot write .*file/b"):
        write_files(files)
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "without its folder, nothing is written"
