"""Every fault of the table, for every client and every way of asking: the declared error, in time, and nothing left open."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import failing_servers
import pytest
from checkout import ROOT
from failing_servers import scripted, write_bundles
from failure_cases import EVERY_WAY, FAILURE_CASES, PATIENT, Endpoint, Setup, ask, page, tls, token

from privtab import Client, DecisionError
from privtab.client import AsyncClient
from privtab.engines.opa.server import OpaServer

SLACK = 1.5
"""Seconds that a busy machine may take on top."""
PAGE = ROOT / "docs" / "reference" / "failures.md"
KINDS = ("Client", "AsyncClient")


@pytest.fixture
def setup(tmp_path: Path, opa_binary: Path) -> Setup:
    return Setup(folder=tmp_path, opa=opa_binary)


def sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


def answer_or_error(
    kind: str, endpoint: Endpoint, way: str, *, wrong: bool = False, limits: Mapping[str, Any] = PATIENT
) -> Any:
    """The answer of one call by a new client, or what it raised."""
    settings = {**limits, **endpoint.settings}
    try:
        if kind == "Client":
            with Client(endpoint.url, system=failing_servers.SYSTEM, **settings) as client:
                return ask(client, way, wrong=wrong)
        return asyncio.run(_asked(endpoint.url, settings, way, wrong=wrong))
    except DecisionError as error:
        return error


async def _asked(url: str, settings: dict[str, Any], way: str, *, wrong: bool) -> Any:
    async with AsyncClient(url, system=failing_servers.SYSTEM, **settings) as client:
        return await ask(client, way, wrong=wrong)


def at_once(work: dict[str, Callable[[], Any]]) -> dict[str, tuple[Any, float]]:
    """What each returns and the seconds that it took, all of them in threads of their own."""
    found: dict[str, tuple[Any, float]] = {}

    def run(name: str) -> None:
        started = time.monotonic()
        found[name] = work[name](), time.monotonic() - started

    threads = [threading.Thread(target=run, args=(name,)) for name in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("kind", ["Client", pytest.param("AsyncClient", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAILURE_CASES)
def test_a_fault_is_the_declared_error(name: str, kind: str, setup: Setup) -> None:
    case = FAILURE_CASES[name]
    if case.group == "Trust" and shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    with case.starts(setup) as endpoint:
        before = sockets()
        wrong = name == "unknown-name"
        call = partial(answer_or_error, kind, endpoint, wrong=wrong, limits=case.settings)
        results = at_once({way: partial(call, way) for way in case.ways})
        assert len(results) == len(case.ways)
        for way, (outcome, seconds) in results.items():
            assert type(outcome) is case.raises, f"{way}: {outcome!r}"
            assert re.search(case.says, str(outcome)), f"{way}: {outcome}"
            assert seconds < case.settings["total"] + SLACK, f"{way} took {seconds:.2f} s"
        if case.tries is not None and endpoint.decisions is not None:
            most = case.tries * len(case.ways)
            # On a busy machine the time of a call may be over before its last try.
            least = 0 if case.at_most else most if case.tries < 2 else len(case.ways) + 1
            assert least <= endpoint.decisions() <= most
        until = time.monotonic() + 4
        while sockets() > before and time.monotonic() < until:
            time.sleep(0.02)
        assert sockets() <= before, "a connection was left open"


@pytest.fixture(scope="session")
def opa(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServer]:
    """An OPA without a fault, which no test changes."""
    with OpaServer(write_bundles(tmp_path_factory.mktemp("bundles")), binary=opa_binary) as started:
        yield started


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", EVERY_WAY)
def test_without_a_fault_the_same_calls_are_answered(way: str, kind: str, opa: OpaServer) -> None:
    answer = answer_or_error(kind, Endpoint(url=opa.url), way)
    expected = {
        "check": True,
        "check_many": [True, False],
        "visible": failing_servers.ITEMS,
        "filter": failing_servers.ITEMS,
    }
    if way in expected:
        assert answer == expected[way]
    else:
        decisions = answer if isinstance(answer, list) else [answer]
        assert [d.allowed for d in decisions] == [True, False][: len(decisions)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("endpoint", [tls(), token(token="right")], ids=["certificate", "token"])  # noqa: S106  (of a test)
def test_with_the_right_certificate_or_token_it_is_answered(endpoint: Any, kind: str, setup: Setup) -> None:
    with endpoint(setup) as right:
        assert answer_or_error(kind, right, "check") is True
        assert answer_or_error(kind, right, "check_many") == [True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_a_scripted_server_counts_what_it_is_asked(kind: str, setup: Setup) -> None:
    with scripted(setup.folder, failing_servers.reply('{"result": true}')).running() as server:
        assert answer_or_error(kind, Endpoint(url=server.url), "check") is True
        assert server.decisions == 1
        assert server.settled()


def test_the_page_says_what_the_table_says(update_golden: bool) -> None:
    begin, end = "<!-- failures: begin -->", "<!-- failures: end -->"
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    expected = f"{head}{begin}\n\n{page()}\n{end}{tail}"
    if update_golden:
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected
