"""The root of the server, for a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests
from authzen_server import Server
from example_bundles import ExampleBundles

from privtab.bundle import program_in
from privtab_analysis.diff import diff
from privtab_analysis.diff.summary import summary
from privtab_server.registry import Canary, Registry, names

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


def test_a_channel_shows_its_releases_and_what_each_changed(
    serving: Serving, registry: Registry, packed: ExampleBundles
) -> None:
    second = registry.put(packed.policies[1]).id
    registry.release("dev", "shop", policy=second, why=EVIL, by=EVIL)
    number = registry.channel("dev", "shop").sequence
    server = serving()
    assert 'href="history/dev/shop"' in server.get("/").text
    releases = server.get("/history/dev/shop")
    assert releases.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert f'href="shop/{number}">policy</a>' in releases.text
    assert second in releases.text
    change = server.get(f"/history/dev/shop/{number}").text
    expected = diff(*(program_in(bundle, "")[0] for bundle in packed.policies[:2]))
    assert expected.changes
    assert f"{summary(expected)}." in change
    for row in expected.changes:
        assert row.operation in change
    assert f"@{number - 1} registry:{registry.url}#dev/shop@{number}" in change
    for page in (releases.text, change):
        assert "<script" not in page
        assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;") == 2, "why and by"


def test_a_release_whose_bundle_is_gone_says_so(serving: Serving, registry: Registry, packed: ExampleBundles) -> None:
    registry.release("dev", "shop", policy=registry.put(packed.policies[1]).id)
    current = registry.channel("dev", "shop")
    digest = registry.history("dev", "shop")[0].digests[f"policy/{registry.history('dev', 'shop')[0].policy}"]
    registry.store.remove(names.blob(digest))
    change = serving().get(f"/history/dev/shop/{current.sequence}")
    assert change.status_code == 200
    assert "has lost the bundle" in change.text


def test_what_there_is_not_is_404(serving: Serving, tmp_path: Path) -> None:
    server = serving()
    for path in (
        "/history/dev/other",
        "/history/no/shop",
        "/history/dev/shop/1",
        "/history/dev/shop/99",
        "/history/..%2F/x",
    ):
        assert server.get(path).status_code == 404, path
