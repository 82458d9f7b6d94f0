"""Questions of a conformance test over AuthZEN, in batches, against `check_many` of the client over OPA."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measure import Contestant, Report, Spread, Table, Target, race
from prepared import Prepared, serve

from privtab import Client, Entity, Request
from privtab.client._transport import RequestsTransport
from privtab.state.nodes import State
from privtab_testing.conform import Question, QuestionPlan, SystemAnswer, World
from privtab_testing.conform.authzen import AuthZenDriver
from privtab_testing.conform.run import Settings, run

QUESTIONS = 5_000
CONFORM, CHECK_MANY = "conform, driver authzen, privtab serve --brief --opa", "Client.check_many, OPA"


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Both contestants at every size."""
    raced: dict[tuple[str, str], Spread] = {}
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
        for size in sizes:
            prepared = Prepared(size=size, folder=Path(folder))
            bundles = prepared.ours()
            with serve(bundles) as opa, Client(opa.url) as client, _authzen(opa.url) as url:
                raced |= race(_contestants(prepared, client, url), repetitions)
    found = {size: (raced[CONFORM, size], raced[CHECK_MANY, size]) for size in sizes}
    names = (CONFORM, CHECK_MANY)
    rows = tuple((name, *(found[size][number].text() for size in sizes)) for number, name in enumerate(names))
    targets = tuple(
        Target(
            what=f"{size}: questions a second of `conform` / `Client.check_many`",
            spread=conform.over(check_many),
            wanted=0.5,
            sense="at least",
        )
        for size, (conform, check_many) in found.items()
    )
    table = Table(title=f"{QUESTIONS:,} questions: a second", columns=("contestant", *sizes), rows=rows)
    return Report(part="conformance", tables=(table,), targets=targets)


def _contestants(prepared: Prepared, client: Client, url: str) -> list[Contestant]:
    world = prepared.world
    asked = [
        Request(user=user, action="select", resource=Entity("table", table))
        for user, table in world.requests[:QUESTIONS]
    ]
    truth = world.may_select[:QUESTIONS]
    plan = _plan(prepared, asked, truth)

    def conform() -> list[bool]:
        driver = AuthZenDriver(RequestsTransport(url), url=url)
        outcome = run(plan, plan.questions, driver, Settings())
        if outcome.failure is not None:
            raise RuntimeError(outcome.failure)
        return [outcome.answers[question.id] is SystemAnswer.ALLOWED for question in plan.questions]

    return [
        Contestant(name=CONFORM, size=prepared.size, run=conform, truth=truth),
        Contestant(name=CHECK_MANY, size=prepared.size, run=lambda: client.check_many(asked), truth=truth),
    ]


def _plan(prepared: Prepared, asked: Sequence[Request], truth: Sequence[bool]) -> QuestionPlan:
    """The requests as a plan whose state the server has already."""
    rule = prepared.program.rules["table", "select"]
    questions = tuple(
        Question(
            id=f"table/select#{number}",
            rule=rule,
            request=request,
            expected=expected,
            holds="",
            state=State(),
            cells=(),
            readings={},
            purpose="",
            named=True,
        )
        for number, (request, expected) in enumerate(zip(asked, truth, strict=True))
    )
    world = World(state=State(), entities=(), users=(), groups=(), roles=())
    return QuestionPlan(program=prepared.program, cells=(), questions=questions, world=world, undecided={}, digest="")


@contextmanager
def _authzen(opa: str) -> Iterator[str]:
    """The address of `privtab serve` in front of an OPA."""
    command = [sys.executable, "-c", "from privtab.command import main; main()", "serve", "--brief", "--opa", opa]
    command += ["--listen", "0", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
