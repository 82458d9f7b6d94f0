"""The page shows what is asked and answered: each exchange with a real server, word by word."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from documentation_pages import read
from store_server import serve_store

from privtab.pipeline import load_program
from privtab_server.store.store import Store

PAGE = "docs/reference/store-server.md"


@pytest.mark.slow
def test_every_exchange_is_as_the_page_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read(PAGE).write(tmp_path)
    Store.create("grants.db", load_program("lake.yaml"), administrators=["root"])
    exchanges = [(asking, showing) for asking, showing in pairwise(read(PAGE).blocks) if asking.language == "http"]
    assert len(exchanges) == 3
    server = serve_store(tmp_path, ["grants.db", "-p", "lake.yaml", "--token-file", "tokens"])
    try:
        for request, response in exchanges:
            head, _, body = request.text.partition("\n\n")
            first, *lines = head.strip().splitlines()
            method, path = first.split()
            headers = dict(line.split(": ", 1) for line in lines)
            sent = {"json": json.loads(body)} if body else {}
            answer = server.session.request(method, server.url + path, headers=headers, timeout=20, **sent)
            assert answer.json() == json.loads(response.text), f"{PAGE}:{request.line}"
    finally:
        server.stop()
