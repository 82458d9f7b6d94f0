"""Bundles that somebody made to do harm: refused at once, in words, whatever their headers say."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from privtab.base.errors import BrokenBundle, FileError
from privtab.base.signatures import Trust
from privtab.bundle import archive
from privtab.bundle.inspect import inspect
from privtab.bundle.sign import verify_bundle
from privtab.command._app import run
from privtab_server.errors import BundleRefused
from privtab_server.registry import Registry

TEN_GB = 10 << 30
DATA = "privtab_state/shop/data.json"
MANIFEST: dict[str, Any] = {
    "revision": "0123456789abcdef",
    "roots": ["privtab_state/shop"],
    "metadata": {"kind": "state", "system": "shop"},
}
Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"{}", kind: bytes = tarfile.REGTYPE, **more: Any) -> Member:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = len(content), kind
    for key, value in more.items():
        setattr(entry, key, value)
    return entry, content


def tar(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry, content in (member(".manifest", json.dumps(MANIFEST).encode()), *members):
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def after(*blocks: bytes) -> bytes:
    """Blocks behind a manifest that is whole."""
    head = tar()
    size = tarfile.BLOCKSIZE * 2
    assert not any(head[size : size + tarfile.BLOCKSIZE]), "the manifest fits one block"
    return head[:size] + b"".join(blocks) + bytes(1024)


def header(name: str, kind: bytes, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def old_sparse(size: int) -> bytes:
    """GNU's first format: one hole, and the size that the file would have."""
    block = bytearray(header(DATA, tarfile.GNUTYPE_SPARSE, 0))
    number = b"\x80" + size.to_bytes(11, "big")
    block[386:398], block[398:410], block[483:495] = number, b"%011o\0" % 0, number
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax_sparse(content: bytes = b"", **more: str) -> bytes:
    records = {f"GNU.sparse.{key}": value for key, value in more.items()}
    return tar(member(DATA, content, pax_headers={**records, "GNU.sparse.realsize": str(TEN_GB)}))


RECORD = header("p", tarfile.XHDTYPE, 13) + b"13 comment=x\n".ljust(512, b"\0")
HARM: dict[str, tuple[bytes, str]] = {
    "sparse, of GNU": (after(old_sparse(TEN_GB)), "is sparse"),
    "sparse, PAX 0.0": (pax_sparse(size=str(TEN_GB), numblocks="0"), "is sparse"),
    "sparse, PAX 0.1": (pax_sparse(size=str(TEN_GB), map=f"{TEN_GB},0"), "is sparse"),
    "sparse, PAX 1.0": (pax_sparse(b"1\n".ljust(512, b"9"), major="1", minor="0"), "is sparse"),
    "a file of ten gigabytes": (after(header(DATA, tarfile.REGTYPE, TEN_GB)), "has 10,737,418,240 bytes"),
    "the same by PAX": (tar(member(DATA, pax_headers={"size": str(TEN_GB)})), "has 10,737,418,240 bytes"),
    "less than nothing": (tar(member(DATA, pax_headers={"size": "-512"})), "-512 bytes"),
    "a gigabyte of PAX": (after(header("p", tarfile.XHDTYPE, 1 << 30)), "says 1,073,741,824 bytes of the next"),
    "a name of a gigabyte": (after(header("l", tarfile.GNUTYPE_LONGNAME, 1 << 30)), "says 1,073,741,824 bytes"),
    "headers of headers": (after(RECORD * 1200), "not a complete bundle"),
    "a header that is none": (after(b"nothing".ljust(512, b"x")), "not a complete bundle: invalid header"),
    "a long name": (tar(member("a/" * 600 + "x.json")), "longer than 1,000 characters"),
    "a path elsewhere": (tar(member("../../etc/passwd")), "not a file path"),
    "a path around": (tar(member(f"x/../{DATA}")), "not a file path"),
    "a path elsewhere, by PAX": (tar(member("x", pax_headers={"path": f"../{DATA}"})), "not a file path"),
    "a name that a terminal obeys": (tar(member("\x1b[2Jx.rego")), r"`\\x1b\[2Jx.rego` in it is not a file path"),
    "one file under two names": (tar(member(DATA), member(f"/{DATA}")), "twice"),
    "a symbolic link": (tar(member("x", b"", tarfile.SYMTYPE, linkname="/etc/passwd")), "a symbolic link"),
    "a hard link": (tar(member(DATA), member("x", b"", tarfile.LNKTYPE, linkname=DATA)), "a hard link"),
    "a pipe": (tar(member("x", b"", tarfile.FIFOTYPE)), "a pipe"),
    "a device": (tar(member("x", b"", tarfile.BLKTYPE)), "a device"),
}


@pytest.mark.parametrize("what", HARM)
def test_hostile_archives_are_refused_early(tmp_path: Path, what: str) -> None:
    content, says = HARM[what]
    bundle = gzip.compress(content, mtime=0)
    assert len(bundle) < 10_000
    registry = Registry.open(str(tmp_path / "registry"))
    # Where a process lets calls nest deeply, following them all takes longer than what is looked at.
    traced = what != "headers of headers"
    if traced:
        tracemalloc.start()
    for look in (lambda: inspect(bundle), lambda: verify_bundle(bundle, Trust(()))):
        with pytest.raises(BrokenBundle, match=says):
            look()
    with pytest.raises(BundleRefused, match=says):
        registry.put(bundle)
    if traced:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 8_000_000
    assert registry.revisions("shop", "state") == []


def unpacking(size: int, *names: str) -> Iterable[bytes]:
    yield tar()[:1024]
    for name in names:
        yield header(name, tarfile.REGTYPE, size)
        yield bytes(size)
    yield bytes(1024)


def test_archives_that_unpack_to_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST", 3_000_000)
    bundle = gzip.compress(b"".join(unpacking(1_048_576, "a.bin", "b.bin", "c.bin")))
    for look in (lambda: inspect(bundle), lambda: verify_bundle(bundle, Trust(()))):
        with pytest.raises(BrokenBundle, match="unpacks to more than"):
            look()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("MOST_VALUES", b'{"a":[' + b"[]," * 1000 + b"[]]}", "more than 1,000 values"),
        ("LARGEST_READ", b'{"a":"' + b"x" * 2000 + b'"}', "2,008 bytes"),
        ("LARGEST_MANIFEST", b"{}", "`.manifest` in it has"),
        ("MOST_ENTRIES", b"{}", "more than 1 files"),
    ],
)
def test_bundles_that_are_too_large_to_inspect(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes, says: str
) -> None:
    bundle = gzip.compress(tar(member(DATA, text)))
    assert inspect(bundle).files
    monkeypatch.setattr(archive, name, {"MOST_ENTRIES": 1, "LARGEST_MANIFEST": 50}.get(name, 1000))
    with pytest.raises(BrokenBundle, match=says):
        inspect(bundle)
    with pytest.raises(BundleRefused, match=says):
        registry.put(bundle)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry.open(str(tmp_path / "registry"))


@pytest.mark.parametrize(
    "text",
    [b'{"a":' * 100_000, b'{"a":' + b"9" * 100_000 + b"}", b'{"a":1e999999}', b'{"revision":"\\ud800"}', b"\xff"],
)
def test_unreadable_json(registry: Registry, text: bytes) -> None:
    bundle = gzip.compress(tar(member(DATA, text)))
    assert inspect(bundle).counts == {}
    with pytest.raises(BundleRefused):
        registry.put(bundle)


@pytest.mark.parametrize(
    "metadata",
    [
        {"kind": "\x1b[31m", "system": "\ud800\x1b]0;x\x07", "provenance": {"compiler": "\x1b[1m", "git": 7}},
        {"provenance": {"sources": [1], "git": {"commit": ["x"]}}},
        {"kind": "state", "system": "x", "shard": {"a": 1}, "provenance": {"sources": {"a": {}}, "\x1b": 1}},
    ],
)
@pytest.mark.parametrize("format_", ["text", "json"])
def test_texts_of_a_bundle_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metadata: dict[str, Any], format_: str
) -> None:
    manifest = json.dumps({"revision": "\x1b[2J", "roots": ["\x1b[3J"], "metadata": metadata}).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry, _ = member(".manifest", manifest)
        archive.addfile(entry, io.BytesIO(manifest))
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(buffer.getvalue()))
    assert run(["bundle", "inspect", str(path), "--format", format_]) == 0
    assert run(["registry", "put", str(tmp_path / "registry"), str(path)]) == 1
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err


def test_a_pipe_is_no_bundle(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.tar.gz"
    os.mkfifo(pipe)
    looks: tuple[Callable[[], object], ...] = (lambda: inspect(pipe), lambda: verify_bundle(pipe, Trust(())))
    for look in looks:
        with pytest.raises(FileError, match="not a pipe"):
            look()
    assert run(["registry", "put", str(tmp_path / "registry"), str(pipe)]) == 3
