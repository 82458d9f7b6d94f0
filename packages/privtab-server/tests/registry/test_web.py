"""A registry behind a stores server that is not to be trusted: what is read of it has an end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from example_bundles import ExampleBundles

from privtab.command._app import run
from privtab_server.errors import BundleRefused, RegistryError
from privtab_server.registry import Registry, stores
from privtab_server.registry.maintenance import check
from privtab_server.registry.nodes import Channel, encoded

Answer = Callable[[str], tuple[bytes, dict[str, str]] | None]
DIGEST = "0" * 64


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server that answers paths by a function, None being 404: where it is, and what was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            paths.append(self.path)
            body, headers = answer(self.path) or (b"", {":status": "404"})
            self.send_response(int(headers.pop(":status", "200")))
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", b"{}", b"<a href='a/'>a</a><a href='b'>b</a>", b"[" * 100_000])
def test_a_server_that_has_everything_is_given_up(body: bytes) -> None:
    with serving(lambda _: (body, {})) as (url, paths):
        registry = Registry.open(url)
        for look in (lambda: registry.channel("prod", "shop"), lambda: registry.history("prod", "shop")):
            with pytest.raises(RegistryError, match="seems to return every file requested"):
                look()
        for everything in (registry.channels, lambda: check(registry)):
            with suppress(RegistryError):  # Where its page lists nothing, there is nothing.
                everything()
    assert len(paths) < 500


def entry(path: str) -> tuple[bytes, dict[str, str]] | None:
    """A history that never ends, of entries that are right."""
    sequence = int(path.rpartition("/")[2].removesuffix(".json")) if "/history/" in path else 7
    channel = Channel(
        channel="prod",
        system="shop",
        sequence=sequence,
        policy="p",
        digests={"policy/p": DIGEST},
        when="2026-01-01T00:00:00Z",
    )
    return encoded(channel.to_json()), {}


def test_a_history_without_an_end_is_given_up() -> None:
    with serving(entry) as (url, paths), pytest.raises(RegistryError, match="seems to return every file requested"):
        Registry.open(url).channel("prod", "shop")
    assert len(paths) < 100


def test_only_the_last_releases_are_read() -> None:
    def answer(path: str) -> tuple[bytes, dict[str, str]] | None:
        found = entry(path)
        assert found is not None
        return found if json.loads(found[0])["sequence"] <= 5000 else None

    with serving(answer) as (url, paths):
        assert [release.sequence for release in Registry.open(url).history("prod", "shop", 3)] == [4998, 4999, 5000]
        assert len(paths) < 100


@pytest.mark.slow
def test_reading_unreadable_releases_ends() -> None:
    def answer(path: str) -> tuple[bytes, dict[str, str]] | None:
        name = path.rpartition("/")[2].removesuffix(".json")
        return (b"{", {}) if name.isdecimal() and int(name) <= 100_000 else None

    with serving(answer) as (url, paths), pytest.raises(RegistryError, match="100 releases in a row cannot be read"):
        Registry.open(url).channel("prod", "shop")
    assert len(paths) < 300


def test_requests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of folders in folders in folders."""
    monkeypatch.setattr(stores, "MOST_ASKED", 200)
    page = "".join(f'<a href="n{at}/">n{at}</a>' for at in range(100)).encode()
    with serving(lambda path: (page, {}) if path.endswith("/") else None) as (url, paths):
        registry = Registry.open(url)
        with pytest.raises(RegistryError, match="refers to more than 200 files"):
            registry.channels()
        assert len(paths) == 200
        registry.store.renew()
        assert registry.channel("prod", "shop").last == 0


def test_a_folder_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_NAMES", 50)
    page = "".join(f'<a href="n{at}/">n{at}</a>' for at in range(51)).encode()
    with serving(lambda _: (page, {})) as (url, _), pytest.raises(RegistryError, match="lists more than 50 names"):
        Registry.open(url).channels()


def test_a_record_is_not_unpacked() -> None:
    """Two megabytes of gzip are a whole lot more in memory."""
    bomb = gzip.compress(b" " * (64 << 20))
    with (
        serving(lambda _: (bomb, {"Content-Encoding": "gzip"})) as (url, _),
        pytest.raises(RegistryError, match="sent as gzip, which was not requested"),
    ):
        Registry.open(url).settings()


def test_a_record_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stores.LARGEST_RECORD < 100 << 20
    large = b" " * (stores.LARGEST_RECORD + 1)
    with serving(lambda _: (large, {})) as (url, _), pytest.raises(RegistryError, match="sent more than"):
        Registry.open(url).settings()
    monkeypatch.setattr(stores, "MOST_RECORDS", 1000)
    with serving(lambda _: (b" " * 400, {})) as (url, _):
        store = Registry.open(url).store
        with pytest.raises(RegistryError, match="of records"):
            [store.read(f"revisions/{at}.json") for at in range(3)]


def test_a_bundle_that_a_server_calls_encoded_is_the_bundle(packed: ExampleBundles) -> None:
    with serving(lambda _: (packed.policies[0], {"Content-Encoding": "x-gzip"})) as (url, _):
        assert Registry.open(url).store.read("blobs/sha256/00/x.tar.gz") == packed.policies[0]


def nested(depth: int) -> dict[str, Any]:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return {"metadata": value}


def test_depth_is_bounded() -> None:
    """What can be read and not written again would be a traceback."""
    body = json.dumps(nested(400)).encode()
    with serving(lambda _: (body, {})) as (url, _), pytest.raises(RegistryError, match="nested more than"):
        Registry.open(url).settings()


def test_a_manifest_is_not_deeper_than_a_record(registry: Registry) -> None:
    from privtab.bundle.archive import packed_archive

    manifest = {"revision": "r", "roots": ["x"], **nested(300)}
    with pytest.raises(BundleRefused, match="nested"):
        registry.put(packed_archive({".manifest": json.dumps(manifest).encode()}))


def test_a_name_in_a_list_is_no_head_and_no_way_out() -> None:
    page = b"<a href='..%2F..%2Fetc/'>x</a><a href='a%0d%0aX-Y:%20z/'>y</a><a href='%2e%2e/'>z</a>"
    with serving(lambda path: (page, {}) if path.endswith("/") else None) as (url, paths):
        run(["registry", "status", "-r", url, "--stored", "all"])
    assert not any(".." in path or "\r" in path or "X-Y: z" in path for path in paths)
