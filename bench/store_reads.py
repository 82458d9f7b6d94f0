"""Authorised reads a second at the server of a store, beside a bare Starlette endpoint that answers the same bytes."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from measure import Report, Spread, Table, WrongAnswerError

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
SIZES = (1_000, 100_000)
"""Grants that are in the store."""
CALLERS, READS = 4, 200
"""Threads, each with a connection that it keeps, and reads of each."""
TABLE = "table:l/s1/t1"
QUESTION = {
    "subject": {"type": "user", "id": "u1"},
    "action": {"name": "read"},
    "resource": {"type": "table", "id": TABLE.partition(":")[2]},
}


def report(_: Sequence[str], repetitions: int) -> Report:
    """Listings of the rows about a table, decisions, and bare answers a second, for stores of several sizes."""
    rows: list[tuple[str, ...]] = []
    for grants in SIZES:
        listings, decisions, bare = reads(grants, repetitions)
        ratios = (listings.over(bare).text(2), decisions.over(bare).text(2))
        rows.append((f"{grants:,}", bare.text(), listings.text(), ratios[0], decisions.text(), ratios[1]))
    columns = ("grants", "bare GET/s", "listings/s", "ratio", "decisions/s", "ratio")
    title = f"{CALLERS} callers at the server of a store"
    return Report(part="store_reads", tables=(Table(title=title, columns=columns, rows=tuple(rows)),))


def reads(grants: int, repetitions: int) -> tuple[Spread, Spread, Spread]:
    """Listings, decisions and bare answers a second."""
    from lake_policy import POLICY, grant
    from store_server import serve_store, token, write_tokens

    from privtab.pipeline import load_program
    from privtab_server.store.store import Store

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        policy, url = folder / "lake.yaml", folder / "grants.db"
        policy.write_text(POLICY, encoding="utf-8")
        store = Store.create(str(url), load_program(policy), administrators=["root"])
        given = [grant(f"user:u{n % 5_000}", "SELECT", f"table:l/s{n % 100}/t{n}") for n in range(grants)]
        store.load({"grants": given, "owners": [{"entity": "lake:l", "owner": "user:root"}]}, actor="bench")
        tokens = write_tokens(folder / "tokens", ["u1"])
        server = serve_store(folder, [url, "-p", policy, "--token-file", tokens])
        stack.callback(server.stop)
        headers = {"Authorization": f"Bearer {token('u1')}", "Content-Type": "application/json"}
        listing = f"/store/v1/rows?about={TABLE}"
        content = _answer(server.url, "GET", listing, headers)
        if [row["row"]["grantee"] for row in json.loads(content)["rows"]] != ["user:u1"]:
            raise WrongAnswerError(f"the rows about {TABLE} are {content!r}")
        decided = _answer(server.url, "POST", "/access/v1/evaluation", headers, QUESTION)
        if json.loads(decided)["decision"] is not True:
            raise WrongAnswerError("user u1 may read their table, and the server denies it")
        bare = stack.enter_context(_bare(content))
        work: tuple[tuple[str, str, str, object, bytes], ...] = (
            (server.url, "GET", listing, None, content),
            (server.url, "POST", "/access/v1/evaluation", QUESTION, decided),
            (bare, "GET", "/", None, content),
        )
        rates: list[list[float]] = [[], [], []]
        for repetition in range(repetitions + 1):
            for found, (base, method, path, body, expected) in zip(rates, work, strict=True):
                rate = _rate(lambda: _calls(base, method, path, headers, body, expected))  # noqa: B023  (called at once)
                if repetition:
                    found.append(rate)
    listings, decisions, bares = (Spread(values=tuple(found)) for found in rates)
    return listings, decisions, bares


def _rate(call: Callable[[], None]) -> float:
    """Answers a second of all callers together."""
    callers = [Thread(target=call) for _ in range(CALLERS)]
    started = time.perf_counter()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return CALLERS * READS / (time.perf_counter() - started)


def _calls(base: str, method: str, path: str, headers: dict[str, str], body: object, expected: bytes) -> None:
    connection = http.client.HTTPConnection(str(urlsplit(base).netloc), timeout=60)
    text = None if body is None else json.dumps(body)
    for _ in range(READS):
        connection.request(method, path, text, headers)
        answer = connection.getresponse().read()
        if answer != expected:
            raise WrongAnswerError(f"{path} was answered {answer!r}")
    connection.close()


def _answer(base: str, method: str, path: str, headers: dict[str, str], body: object = None) -> bytes:
    connection = http.client.HTTPConnection(str(urlsplit(base).netloc), timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse().read()
    connection.close()
    return answer


@contextmanager
def _bare(content: bytes) -> Iterator[str]:
    """A server in another process whose only endpoint answers some bytes."""
    with subprocess.Popen([sys.executable, __file__, content.decode()], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def _serve(content: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        del request
        return Response(content, media_type="application/json")

    # asyncio turns Nagle's algorithm off only where the protocol is named.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(Starlette(routes=[Route("/", answer)]), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    _serve(sys.argv[1])
