"""The same raw JSON to OPA, to `serve` and to `decide`: the same decision, or none of them allows it."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import raw_requests
import requests as http
from engine_agreement import World, ask, put_state, serving
from seeds import seeds

from privtab import Embedded
from privtab.bundle import state_bundle
from privtab.command._app import run
from privtab.state.load import load_raw_state, validate
from privtab_server.authzen.app import AppSettings, application
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

AT_ONCE = 500


@dataclass(frozen=True)
class DecisionPoints:
    """One policy with its state, for each of the three decision points."""

    folder: Path
    world: World
    url: str
    app: Any

    @property
    def system(self) -> str:
        return self.world.program.system


@pytest.fixture(scope="module")
def points(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DecisionPoints]]:
    made = [raw_requests.policy(number) for number in range(raw_requests.POLICIES)]
    with serving([text for text, _ in made], opa_binary) as (url, worlds), http.Session() as session:
        found = []
        for world, (text, rows) in zip(worlds, made, strict=True):
            folder = tmp_path_factory.mktemp(world.program.system)
            (folder / "policy.yaml").write_text(text, encoding="utf-8")
            (folder / "state.json").write_text(json.dumps(rows), encoding="utf-8")
            state, problems = validate(world.program, load_raw_state(folder / "state.json"))
            assert not [one for one in problems if one.severity == "error"]
            put_state(session, url, world.program, state)
            (folder / "policy.tar.gz").write_bytes(world.artifacts.bundle())
            (folder / "state.tar.gz").write_bytes(state_bundle(world.program, state))
            service = Service(LocalDecisionPoint(Embedded(folder)), system=world.program.system)
            found.append(
                DecisionPoints(folder, world, url, application(AppSettings(services={"": service}, base="http://pdp")))
            )
        yield found


def by_opa(points: DecisionPoints, documents: Sequence[Any]) -> tuple[list[bool], list[bool]]:
    """Return the answers of `allow` and of `decision`."""
    with http.Session() as session:
        allowed = ask(session, points.url, points.system, "decisions", {"requests": documents})
        explained = ask(session, points.url, points.system, "explained", {"requests": documents})
    assert len(explained) == len(documents)
    return allowed, [answer["decision"] for answer in explained]


def by_command(
    points: DecisionPoints, documents: Sequence[Any], capsys: pytest.CaptureFixture[str], engine: str
) -> list[bool]:
    """What `privtab decide` says."""
    lines = points.folder / "requests.jsonl"
    lines.write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")
    arguments = ["-p", str(points.folder / "policy.yaml"), "-s", str(points.folder / "state.json"), "-r", str(lines)]
    assert run(["decide", *arguments, "--engine", engine]) in (0, 1)
    return [json.loads(line)["decision"] for line in capsys.readouterr().out.splitlines()]


def by_service(points: DecisionPoints, documents: Sequence[Any]) -> list[bool | None]:
    """What `privtab serve` says; None where the body is none of the specification's."""

    async def send() -> list[bool | None]:
        transport = httpx.ASGITransport(app=points.app)
        found: list[bool | None] = []
        async with httpx.AsyncClient(transport=transport, base_url="http://pdp") as client:
            for document in documents:
                answer = await client.post("/access/v1/evaluation", json=document)
                assert answer.status_code in (200, 400), answer.text
                found.append(answer.json()["decision"] if answer.status_code == 200 else None)
        return found

    return asyncio.run(send())


def left_off(document: Any) -> bool:
    """Whether there is no id, which the specification requires of resources, and a request about a whole type may leave off."""
    return "id" not in document["resource"]


def brings(document: Any) -> Any:
    """The groups: `serve` reads no property that the policy does not declare."""
    return document["subject"].get("properties", {}).get("groups", [])


def differing(
    points: DecisionPoints, documents: Sequence[Any], capsys: pytest.CaptureFixture[str], seen: Counter[bool]
) -> Any:
    """The requests on which they differ, with what each says."""
    answers = (
        *by_opa(points, documents),
        by_command(points, documents, capsys, "reference"),
        by_command(points, documents, capsys, "python"),
        by_service(points, documents),
    )
    found = []
    takes_groups = "request" in points.world.program.semantics.groups
    for document, allow, decision, reference, python, served in zip(documents, *answers, strict=True):
        seen[reference] += 1
        same = allow == decision == reference == python
        expected = served is reference or (served is None and (not reference or left_off(document)))
        if same and not expected and not takes_groups:
            expected = served is True and bool(brings(document))
        if not (same and expected):
            found.append((json.dumps(document), allow, decision, reference, python, served))
    return found


def compared(points: Sequence[DecisionPoints], seed: int, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    rnd, seen = random.Random(seed), Counter[bool]()
    of_each = number // len(points)
    for one in points:
        documents = [raw_requests.request(rnd) for _ in range(of_each)]
        for at in range(0, of_each, AT_ONCE):
            found = differing(one, documents[at : at + AT_ONCE], capsys, seen)
            assert not found, (one.system, len(found), *found[:5])
    assert min(seen[True], seen[False]) > number / 10, seen


@pytest.mark.parametrize("seed", seeds(range(10), quick=1))
def test_raw_requests_are_decided_alike(
    points: list[DecisionPoints], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(points, seed, 200, capsys)


@pytest.mark.long
def test_ten_thousand_raw_requests_are_decided_alike(
    points: list[DecisionPoints], search_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(points, search_seed, 10_000, capsys)
