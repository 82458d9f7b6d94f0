"""AuthZEN without a network: processor time of a decision and of an item of a batch, beside a Starlette that decides nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Report, Spread, Table, Target, WrongAnswerError
from prepared import Prepared
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from privtab.client.embedded import Embedded
from privtab_server.authzen.app import EVALUATION, EVALUATIONS, AppSettings, application
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

DECISIONS = 2_000
BATCH = 100
BARE, ONE, MANY = "Starlette alone: JSON in, JSON out", "one decision", f"one of a batch of {BATCH}"


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Every contestant in turn, on the world S, in brief form."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        prepared = Prepared(size="S", folder=Path(name))
        bundles = prepared.ours()
        point = LocalDecisionPoint(Embedded(bundles["policy"], bundles["state"]))
        asked, truth = prepared.world.requests[:DECISIONS], list(prepared.world.may_select[:DECISIONS])
    ours = application(AppSettings(services={"": Service(point, brief=True)}, base="http://pdp"))
    singles = [_body(_evaluation(user, table)) for user, table in asked]
    batches = [
        _body({"evaluations": [_evaluation(user, table) for user, table in asked[start : start + BATCH]]})
        for start in range(0, DECISIONS, BATCH)
    ]
    contestants: dict[str, tuple[ASGIApp, str, list[bytes]]] = {
        BARE: (Starlette(routes=[Route(EVALUATION, _bare, methods=["POST"])]), EVALUATION, singles),
        ONE: (ours, EVALUATION, singles),
        MANY: (ours, EVALUATIONS, batches),
    }
    spent: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    with asyncio.Runner() as runner:
        for repetition in range(repetitions + 1):
            for contestant, (app, path, bodies) in contestants.items():
                gc.collect()
                started = time.process_time()
                answers = runner.run(_answers(app, path, bodies))
                seconds = time.process_time() - started
                if repetition:  # the first is a warm-up
                    spent[contestant].append(seconds / DECISIONS * 1e6)
                found = [one["decision"] for answer in answers for one in answer.get("evaluations", [answer])]
                if contestant != BARE and found != truth:
                    raise WrongAnswerError(f"{contestant}: not the answers of the world")
    spreads = {contestant: Spread(values=tuple(values)) for contestant, values in spent.items()}
    return Report(
        part="authzen",
        tables=(
            Table(
                title="Microseconds of the processor for each decision: median (min..max)",
                columns=("contestant", "µs"),
                rows=tuple((contestant, spread.text(1)) for contestant, spread in spreads.items()),
            ),
        ),
        targets=(
            Target(what="one decision / Starlette alone", spread=spreads[ONE].over(spreads[BARE]), wanted=4, sense="at most"),
            Target(
                what="an item of a batch / one decision", spread=spreads[MANY].over(spreads[ONE]), wanted=0.25,
                sense="at most",
            ),
        ),
    )  # fmt: skip


def _evaluation(user: str, table: str) -> dict[str, Any]:
    return {
        "subject": {"type": "user", "id": user},
        "action": {"name": "select"},
        "resource": {"type": "table", "id": table},
    }


def _body(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def _bare(request: Request) -> Response:
    json.loads(await request.body())
    return Response(json.dumps({"decision": True}), media_type="application/json")


async def _answers(app: ASGIApp, path: str, bodies: Sequence[bytes]) -> list[dict[str, Any]]:
    return [await _answer(app, path, body) for body in bodies]


async def _answer(app: ASGIApp, path: str, body: bytes) -> dict[str, Any]:
    """The JSON that an application answers to a POST."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"pdp"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "query_string": b"", "headers": headers}
    await app(scope | {"client": ("127.0.0.1", 1), "server": ("pdp", 80), "scheme": "http"}, receive, send)
    answer: dict[str, Any] = json.loads(sent[1]["body"])
    return answer
