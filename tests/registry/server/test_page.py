"""The root of the server, for a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests
from authzen_server import Server
from example_bundles import ExampleBundles

from privtab.registry import Canary, Registry

Serving = Callable[..., Server]
EVIL = "<script>alert(1)</script>\"'&"


def test_the_page_shows_channels_releases_and_sidecars(
    serving: Serving, registry: Registry, packed: ExampleBundles
) -> None:
    second = registry.put(packed.policies[1]).id
    registry.release("dev", "shop", canary=Canary(policy=second, share=0.25), why=EVIL, by=EVIL)
    server = serving()
    headers = {"X-Privtab-Instance": "web-1", "X-Privtab-Labels": "zone=a"}
    etag = server.get("/channels/dev/shop/state.tar.gz", headers=headers).headers["ETag"]
    server.get("/channels/dev/shop/state.tar.gz", headers={**headers, "If-None-Match": etag})
    server.get("/channels/dev/shop/policy.tar.gz", headers={"X-Privtab-Instance": EVIL})
    answer = server.get("/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    page = answer.text
    now = registry.channel("dev", "shop")
    for shown in (
        "dev/shop",
        str(now.policy),
        str(now.state),
        f"{second} for 25%",
        "web-1",
        "zone=a",
        "up to date",
    ):
        assert shown in page
    assert "behind: dev/shop/policy" in page
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;") == 3, "why, by, and the sidecar's name"


def test_links_of_the_page_lead_somewhere(serving: Serving) -> None:
    server = serving()
    for path in ("/fleet", "/metrics", "/channels/", "/revisions/", "/blobs/", "/registry.json"):
        assert f'href="{path[1:]}"' in server.get("/").text
        assert server.get(path).ok
    assert Registry.open(server.url).channels()[0].channel == "dev", "programs read on"


def test_an_empty_registry_says_what_to_do(serving: Serving, tmp_path: Path) -> None:
    empty = Registry.open(str(tmp_path / "empty"))
    empty.init()
    page = serving(url=empty.url).get("/").text
    assert "No channel yet: <code>privtab deploy POLICY --registry" in page
    assert "No bundle is stored yet" in page
    assert "No sidecar has polled" in page


def test_a_record_that_cannot_be_read_is_reported(serving: Serving, registry: Registry) -> None:
    registry.store.replace("revisions/shop/policy/0123456789abcdef.json", b"{")
    assert "1 of the records cannot be read" in serving().get("/").text


def test_the_page_is_for_operators(serving: Serving, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ops operator-token-0123456789 operator\nweb sidecar-token-0123456789 sidecar\n")
    server = serving("--token-file", tokens)
    assert server.get("/").status_code == 401
    for token, status in (("operator", 200), ("sidecar", 403)):
        bearer = {"Authorization": f"Bearer {token}-token-0123456789"}
        assert requests.get(f"{server.url}/", headers=bearer, timeout=20).status_code == status
