"""Which bundles a server keeps in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from privtab_server.registry.nodes import Channel, pin
from privtab_server.registry.server import feeds as served
from privtab_server.registry.server.feeds import Feeds


class Kept:
    """A registry with bundles of ten bytes, and one channel."""

    url = "kept"

    def __init__(self) -> None:
        self.read: list[str] = []

    def blob(self, digest: str) -> bytes:
        self.read.append(digest)
        return digest.encode() * 10

    def requires_signatures(self) -> bool:
        return False


def test_inactive_bundles_are_dropped_beyond_a_limit_and_active_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "CACHED_BYTES", 20)
    registry: Any = Kept()
    feeds = Feeds(registry)
    policy = pin("policy", "p")

    async def ask(*digests: str) -> list[str]:
        del registry.read[:]
        for digest in digests:
            assert await feeds.bundle(digest) == digest.encode() * 10
        return list(registry.read)

    async def run() -> None:
        await feeds._serve(Channel(channel="dev", system="shop", sequence=1, policy="p", digests={policy: "a"}))
        assert await ask("a", "b", "c", "b") == ["a", "b", "c"]
        assert await ask("d") == ["d"]
        assert await ask("a", "b", "d") == [], "`c` was not used for longest"
        assert await ask("c") == ["c"]
        await feeds._serve(Channel(channel="dev", system="shop", sequence=2, policy="p", digests={policy: "z"}))
        assert await ask("c", "d") == [], "`a` is inactive now, and was not used for longest"
        assert await ask("a") == ["a"]

    asyncio.run(run())
