"""`privtab decide`: answer requests, one JSON line for each request line, in order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

from privtab.base import strict_json
from privtab.base.errors import FileError, InvalidRequest, UsageError
from privtab.base.files import STATE_HELP
from privtab.base.request import Request
from privtab.base.vocabulary import Vocabulary
from privtab.command._engines import ENGINES, Answers, asked_at, engine_named, engine_names
from privtab.command._options import AtOption, PolicyOptions, QuestionOptions
from privtab.command._output import fail_if, flush, print_error_line, print_line
from privtab.command._parameters import option

PANEL = "Ask"

ParsedRequest: TypeAlias = Request | InvalidRequest

_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some editors write."""


def run(
    policy: PolicyOptions,
    state: Annotated[Path | None, option("--state -s STATE", STATE_HELP)] = None,
    requests: Annotated[
        str, option("--requests -r FILE.jsonl", "Requests, one JSON object per line; - for standard input.")
    ] = "-",
    engine: Annotated[
        str, option("--engine -e ENGINE", f"Engine that decides: {', '.join(ENGINES)}.", names=engine_names)
    ] = "reference",
    url: Annotated[
        str | None, option("--url URL", "Ask a running OPA, which decides by its own bundles. Implies --engine opa.")
    ] = None,
    at: AtOption = None,
) -> None:
    """Answer requests: one JSON line per request line, in order.

    A denial is an answer: it exits with 0. An invalid request is answered with a denial and an error, and the command
    exits with 1 at the end.

    Example:
      privtab decide --policy lake.yaml --state state.yaml < asked.jsonl
      privtab decide -p lake.yaml -s state.yaml -r asked.jsonl --engine opa
      privtab decide -p cdap/final --url http://127.0.0.1:8181 < asked.jsonl
    """
    from privtab.ir.serialise import vocabulary

    if state is None and url is None:
        raise UsageError("`--state` is missing (only with `--url` an OPA has its own)")
    if state is not None and url is not None:
        raise UsageError("`--state` and `--url` exclude each other: the OPA at the URL has its own state")
    if at is not None and url is not None:
        raise UsageError("`--at` and `--url` exclude each other: the OPA at the URL decides by its own clock")
    opened = engine_named(engine)  # before a policy or a state is read
    program = policy.program()
    with ExitStack() as stack:
        lines = stack.enter_context(_lines(requests))
        if url is not None:
            answers, partial = stack.enter_context(asked_at(url, program.system)), False
        else:
            assert state is not None
            asked = QuestionOptions(policy=policy.policy, state=state, at=at)
            loaded, _, partial = asked.rows(program)
            answers = stack.enter_context(opened(program, loaded))
        wrong = _run(lines, answers, vocabulary(program))
    fail_if(wrong or partial)


def _lines(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)  # stays open
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise FileError(f"no such file: {path}") from None


def _run(lines: Iterable[bytes], answers: Answers, vocabulary: Vocabulary) -> int:
    """Answer every line in order and return how many requests were invalid."""
    invalid = 0
    parsed = _read(lines, vocabulary)
    while chunk := list(islice(parsed, answers.chunk)):
        invalid += sum(isinstance(request, InvalidRequest) for _, request in chunk)
        decided = iter(answers.decide([request for _, request in chunk if isinstance(request, Request)]))
        for number, request in chunk:
            if isinstance(request, InvalidRequest):
                print_error_line(f"line {number}: {request}")
                error = {"kind": "invalid_request", "message": str(request)}
                answer: object = {"decision": False, "context": {"error": error}}
            else:
                answer = next(decided).to_json()
            print_line(answer)
        flush()
    return invalid


def _read(lines: Iterable[bytes], vocabulary: Vocabulary) -> Iterator[tuple[int, ParsedRequest]]:
    """The number of each line and its request or error; blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = strict_json.strict_loads(line.removeprefix(_MARK) if number == 1 else line)
            request = Request.from_json(document, vocabulary)
            vocabulary.check(request)
        except InvalidRequest as error:
            yield number, error
        except ValueError as error:
            yield number, InvalidRequest(f"not JSON: {error}")
        else:
            yield number, request
