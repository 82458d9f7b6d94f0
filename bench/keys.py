"""The cost of checking the keys of items: processor time of an OPA with and without the check in the policy."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from measure import Caller, Report, Spread, Table, Target, WrongAnswerError
from prepared import Prepared, entity, serve
from workload import ancestors

from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts

BATCH = 500
CHECKED, UNCHECKED = "keys checked", "keys not checked"
MOST = 1.05
_RULE = re.compile(r"^decisions := answers if \{$.*?^\}$", re.DOTALL | re.MULTILINE)
_UNCHECKED = """\
decisions := [answer |
	some [user, keys] in input.items
	answer := allowed(user, keys)
] if {
	lib.ready
	is_array(input.items)
	lib.well_formed
}"""


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Each operation at every size. Batches alternate between both sides, so that noise affects both equally."""
    seconds: dict[tuple[str, str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-bench-")))
        for size in sizes:
            prepared = Prepared(size=size, folder=folder)
            bundles = dict(prepared.ours())
            unchecked = folder / f"{size}-unchecked.tar.gz"
            unchecked.write_bytes(without_check(prepared.program))
            servers = {
                CHECKED: stack.enter_context(serve(bundles)),
                UNCHECKED: stack.enter_context(serve(bundles | {"policy": unchecked})),
            }
            for repetition in range(repetitions + 1):
                for operation, truth in (("select", prepared.world.may_select), ("load", prepared.world.may_load)):
                    spent = _raced(prepared, operation, truth, servers)
                    for side, value in spent.items():
                        if repetition:  # The first is a warm-up.
                            seconds.setdefault((size, operation, side), []).append(value)
    spreads = {key: Spread(values=tuple(values)) for key, values in seconds.items()}
    questions = [(operation, side) for operation in ("select", "load") for side in (CHECKED, UNCHECKED)]
    return Report(
        part="keys",
        tables=(
            Table(
                title="Microseconds of OPA's processor for each item: median of the repetitions (min..max)",
                columns=("question", *sizes),
                rows=tuple(
                    (f"{operation}, {side}", *(spreads[size, operation, side].text(1) for size in sizes))
                    for operation, side in questions
                ),
            ),
        ),
        targets=tuple(
            Target(
                what=f"{size}: `{operation}`, {CHECKED} / {UNCHECKED}",
                spread=spreads[size, operation, CHECKED].over(spreads[size, operation, UNCHECKED]),
                wanted=MOST,
                sense="at most",
            )
            for size in sizes
            for operation in ("select", "load")
        ),
    )


def without_check(program: Program) -> bytes:
    """The policy bundle with a rule for batches that does not check the keys of items."""
    artifacts = policy_artifacts(program)
    path = f"privtab/{artifacts.name}/policy.rego"
    text, count = _RULE.subn(lambda _: _UNCHECKED, artifacts.modules[path])
    if count != 1:
        raise ValueError(f"{path} has no single rule for batches of items")
    return replace(artifacts, modules={**artifacts.modules, path: text}).bundle()


def _raced(
    prepared: Prepared, operation: str, truth: Sequence[bool], servers: Mapping[str, OpaServer]
) -> dict[str, float]:
    """Microseconds of processor time for each item, by side; every answer is checked."""
    items = [(user, [entity(path) for path in ancestors(table)]) for user, table in prepared.world.requests]
    callers = {side: Caller(server.url) for side, server in servers.items()}
    before = {side: _processor(server) for side, server in servers.items()}
    sides = list(servers)
    for start in range(0, len(items), BATCH):
        asked = {
            "action": {"name": operation},
            "resource": {"type": "table"},
            "items": items[start : start + BATCH],
        }
        sides.reverse()
        for side in sides:
            if callers[side].ask("privtab/gravitino/decisions", asked) != list(truth[start : start + BATCH]):
                raise WrongAnswerError(f"{operation}, {side}, {prepared.size}: answers are wrong")
    return {side: (_processor(server) - before[side]) / len(items) * 1e6 for side, server in servers.items()}


def _processor(server: OpaServer) -> float:
    """Seconds of processor time that an OPA has used, user and system."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
