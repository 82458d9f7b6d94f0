"""A policy and a state as somebody types them: findings, and the answer to a question.

The texts are untrusted. They are read in a process of its own with little time and memory (`privtab_pages.explore.editing`), or in the
browser, never in the process of a server. They name no file: settings are not looked up, and nothing is written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import time_ns
from typing import Any

from privtab.base import Diagnostic, PolicyInvalid, PrivtabError, SourceFile, moment_text
from privtab.ir import Program
from privtab.pipeline import resolve_policy
from privtab.state import Places, RawReader, State, StateFinding, read_yaml_rows, validate_with_places
from privtab_analysis.html import page
from privtab_pages.explore.views import decision
from privtab_pages.explore.world import MOST_NAMES, Query, World, caller_of, request_of

MEMORY, SECONDS = 1 << 30, 10
"""Limits of the process that reads edited texts: bytes beside what its libraries take, and seconds of a processor."""
MOST_FINDINGS = 100
"""Findings that an answer lists."""
NAMES = {"policy": "policy.yaml", "state": "state.yaml"}
"""What the two texts are called in findings."""
_FIRST = {
    "policy": "{privtab: 1, system: a, version: 1, entities: {t: }, privileges: [P], tables: {t: {o: P (t)}}}",
    "state": "grants: [{grantee: user:u, effect: allow, privilege: P, entity: t:x}]",
    "question": [["user", "u"], ["operation", "o"], ["entity", "t:x"]],
}
"""What a process reads before it is limited, so that whatever is loaded late is loaded."""


def edited(texts: Mapping[str, str], question: list[tuple[str, str]]) -> dict[str, Any]:
    """The findings in the texts of `NAMES`, the answer as HTML, and names to ask about.

    The answer is empty without a question, and a reason why there is none if the texts have errors.
    """
    program, found = _program(texts["policy"])
    state, places, wrong = (None, Places.NONE, ()) if program is None else _state(program, texts["state"])
    findings = [*map(_of_policy, found), *map(_of_state, wrong)]
    errors = sum(finding["severity"] == "error" for finding in findings)
    answered: dict[str, Any] = {
        "findings": findings[:MOST_FINDINGS],
        "errors": errors,
        "left": len(findings[MOST_FINDINGS:]),
        "answer": "",
        "names": {},
    }
    if program is None or state is None or errors:
        return answered
    moment = time_ns()
    world = World(
        program=program,
        shown=NAMES["policy"],
        state=state.at(moment),
        places=places.some(state.held(moment)),
        state_shown=NAMES["state"],
        moment=moment,
        moment_shown=moment_text(moment - moment % 1_000_000_000),
        request=request_of(program),
        caller=caller_of(program),
    )
    kinds = ("user", "operation", "entity")
    answered["names"] = {kind: world.suggestions(kind, "", MOST_NAMES) for kind in kinds}
    query = Query(question)
    if all(query.one(kind) for kind in kinds):
        problem, values = "", {}
        try:
            values = decision(world, query)
        except PrivtabError as error:
            problem = str(error)
        answered["answer"] = page("explore/edited", world=world, query=query, problem=problem, static=True, **values)
    return answered


def _program(text: str) -> tuple[Program | None, tuple[Diagnostic, ...]]:
    """The program of a text, and every finding, of all checks; no program if there are errors."""
    source = SourceFile.of(NAMES["policy"], text)
    try:
        checked = resolve_policy(Path(os.devnull), source=source).check()  # no settings lie above it
    except PolicyInvalid as error:
        return None, error.diagnostics
    return checked.program, checked.findings.kept


def _state(program: Program, text: str) -> tuple[State, Places, tuple[StateFinding, ...]]:
    reader = RawReader()
    read_yaml_rows(text, NAMES["state"], reader)
    return validate_with_places(program, reader.done())


def _of_policy(found: Diagnostic) -> dict[str, Any]:
    span = found.span
    return _shown("policy", [span.line, span.column, span.end_line, span.end_column], found)


def _of_state(found: StateFinding) -> dict[str, Any]:
    line = found.place.line or 1
    return _shown("state", [line, 1, line + 1, 1], found)


def _shown(where: str, place: list[int], found: Diagnostic | StateFinding) -> dict[str, Any]:
    """A finding as the page lists it; `place`: the line and the column of its beginning and of its end."""
    text = f"{found.severity}[{found.code} {found.name}]: {found.message}"
    return {"where": where, "place": place, "severity": found.severity, "text": text, "help": found.help or ""}


def answer_text(asked: str) -> str:
    """The answer to a JSON text, `{"policy": …, "state": …, "question": […]}`, as a JSON text; whatever goes wrong is a problem in it."""
    try:
        document = json.loads(asked)
        texts = {name: str(document[name]) for name in NAMES}
        question = [(str(name), str(value)) for name, value in document["question"]]
        found = edited(texts, question)
    except PrivtabError as error:
        found = {"problem": str(error)}
    except MemoryError:
        found = {"problem": "this takes too much memory"}
    except RecursionError:
        found = {"problem": "this is nested too deeply"}
    except (KeyError, TypeError, ValueError):
        found = {"problem": "this is no question: the page and what reads it are of different versions"}
    return json.dumps(found)


def _limit() -> None:
    """Limit this process: it writes no file, and ends when it takes too much."""
    if sys.platform == "win32":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if sys.platform == "linux" else 0
    for what, limit in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    answer_text(json.dumps(_FIRST))
    _limit()
    sys.stdout.write(answer_text(sys.stdin.read()))
