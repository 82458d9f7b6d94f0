"""The page shows what is asked and answered: each exchange, over a socket, word by word."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from authzen_server import start
from documentation_pages import Block, read

PAGE = "docs/reference/authzen.md"


def exchanges() -> list[tuple[Block, Block]]:
    """Each call and the block after it."""
    return [(request, response) for request, response in pairwise(read(PAGE).blocks) if request.language == "http"]


@pytest.mark.slow
def test_every_exchange_is_as_the_page_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read(PAGE).write(tmp_path)
    server = start(["-p", "library.yaml", "-s", "state.yaml"], tmp_path)
    try:
        assert len(exchanges()) == 4
        for request, response in exchanges():
            line, _, body = request.text.partition("\n\n")
            method, path = line.split()
            assert method == "POST"
            assert shown(server.answer(path, json.loads(body))) == json.loads(response.text), f"{PAGE}:{request.line}"
    finally:
        server.stop()


def shown(answer: Any) -> Any:
    """As the page shows it: revisions change with every word of the compiler."""
    return json.loads(re.sub(r'"revision": "[0-9a-f]{16}"', '"revision": "…"', json.dumps(answer)))
