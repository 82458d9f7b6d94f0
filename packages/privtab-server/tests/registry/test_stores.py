"""Storage: what each kind promises, and what is said where it cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from example_bundles import ExampleBundles

from privtab.base import UsageError
from privtab_server.errors import RegistryError
from privtab_server.registry import Registry
from privtab_server.registry.maintenance import check
from privtab_server.registry.stores import Exists, LocalStore, Missing, opened


class Quiet(SimpleHTTPRequestHandler):
    """A static server, as any other."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def static(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "registry"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_each_storage_keeps_its_promises(any_registry: Registry) -> None:
    store = any_registry.store
    assert store.names("a") == []
    for ask in (store.read, store.size):
        with pytest.raises(Missing):
            ask("a/b")
    store.create("a/b", b"one")
    with pytest.raises(Exists):
        store.create("a/b", b"two")
    assert (store.read("a/b"), store.size("a/b")) == (b"one", 3)
    store.replace("a/b", b"three")
    store.replace("a/c/d", b"")
    assert (store.read("a/b"), store.names("a")) == (b"three", ["b", "c"])
    store.remove("a/b")
    store.remove("a/b")
    with pytest.raises(Missing):
        store.read("a/b")


def test_one_of_many_threads_creates(any_registry: Registry) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def create(at: int) -> bool:
        try:
            any_registry.store.create("one", str(at).encode())
        except Exists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(16)))
    assert sum(won) == 1
    assert any_registry.store.read("one") == str(won.index(True)).encode()


def test_folders_without_hard_links_take_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", none)
    test_one_of_many_threads_creates(Registry(LocalStore(tmp_path)))


def test_a_static_server_is_a_registry_to_read(static: str, registry: Registry, packed: ExampleBundles) -> None:
    ids = [registry.put(policy).id for policy in packed.policies]
    state = registry.put(packed.states[0]).id
    for at in range(5):
        registry.release("dev", "shop", policy=ids[at % 2], state=state)
    seen = Registry.open(static)
    assert seen.channel("dev", "shop") == registry.channel("dev", "shop")
    assert seen.history("dev", "shop") == registry.history("dev", "shop")
    assert seen.revisions("shop") == registry.revisions("shop")
    assert seen.read(seen.revision("shop", "state", state)) == packed.states[0]
    assert seen.channels() == registry.channels()
    assert check(seen).problems == ()
    with pytest.raises(UsageError, match="is read-only"):
        seen.release("dev", "shop", policy=ids[0])
    with pytest.raises(UsageError, match="is read-only"):
        seen.put(packed.states[1])


def test_a_copy_that_lags_is_not_believed(static: str, registry: Registry, packed: ExampleBundles) -> None:
    ids = [registry.put(policy).id for policy in packed.policies]
    for at in range(3):
        registry.release("dev", "shop", policy=ids[at % 2])
    old = registry.history("dev", "shop")[0]
    from privtab_server.registry.nodes import encoded

    registry.store.replace("channels/dev/shop/channel.json", encoded(old.to_json()))
    assert Registry.open(static).channel("dev", "shop").sequence == 3


def test_a_storage_that_does_not_answer_is_trouble(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9", "s3://none/x"):
        options = {} if url.startswith("http") else {"endpoint_url": "http://127.0.0.1:9", "key": "a", "secret": "b"}
        if options:
            options["config_kwargs"] = {"connect_timeout": 1, "retries": {"max_attempts": 0}}  # type: ignore[assignment]
        with pytest.raises(RegistryError):
            Registry.open(url, **options).channel("dev", "shop")
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "channels").write_text("no folder")
    with pytest.raises(RegistryError):
        Registry.open(str(tmp_path / "registry")).store.create("channels/dev/x", b"")


def test_a_storage_that_creates_twice_is_refused(tmp_path: Path, packed: ExampleBundles) -> None:
    class Careless(LocalStore):
        def create(self, path: str, content: bytes) -> None:
            self.replace(path, content)

    registry = Registry(Careless(tmp_path))
    for _ in range(2):
        with pytest.raises(UsageError, match="overwrites existing files"):
            registry.put(packed.policies[0])
    assert registry.settings() == {}


def test_addresses_that_are_none() -> None:
    for url in ("s3://", "memory:///", "nothing-known://x/y"):
        with pytest.raises(UsageError):
            opened(url)
