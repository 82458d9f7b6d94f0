"""Processor time of the pages of `privtab explore`: what is worked out when it starts, and each page the first time it is asked for."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time_ns
from urllib.parse import parse_qsl, urlencode

from measure import Report, Spread, Table, WrongAnswerError
from prepared import POLICY
from questions import write
from workload import World as MadeWorld
from workload import world

from privtab.command._options import load_state
from privtab.engines.python import OpenEngine
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab_pages.explore.site import answer
from privtab_pages.explore.world import World, caller_of, request_of

PAGES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "the table": ("table", {}),
    "a decision": ("decision", {"user": "USER", "operation": "load", "entity": "table:TABLE"}),
    "a decision about nobody": ("decision", {"user": "nobody", "operation": "drop", "entity": "table:TABLE"}),
    "who can": ("who-can", {"operation": "load", "entity": "table:TABLE"}),
    "who can, by principal": ("who-can", {"operation": "load", "entity": "table:TABLE", "by": "principal"}),
    "what can": ("what-can", {"user": "USER"}),
    "heat map of catalogs": ("heat", {"within": "metalake:m"}),
    "heat map of all tables": ("heat", {"within": "metalake:m", "type": "table"}),
    "rows about a user": ("what-if", {"about": "user:USER"}),
    "what if, a role more": ("what-if", {"add": "assignments?principal=user:USER&role=r5"}),
    "what if, a role less": ("what-if", {"remove": "ASSIGNMENT"}),
    "a filter": ("filter", {"user": "USER", "operation": "load", "type": "table"}),
}


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds by page and size."""
    columns, rows = ["page", *sizes], {name: [name] for name in ("at the start", *PAGES)}
    for size in sizes:
        made = world(size)
        with tempfile.TemporaryDirectory() as folder:
            write(made, Path(folder))
            explored = _opened(Path(folder) / "parquet")
        begun = time.process_time()
        for _ in explored.warm():
            pass
        rows["at the start"].append(Spread(values=(time.process_time() - begun,)).text(2, " s"))
        for name in PAGES:
            spent = tuple(_seconds(explored, made, name, n) for n in range(repetitions))
            rows[name].append(Spread(values=spent).text(2, " s"))
    table = Table(title="Pages of `privtab explore`", columns=tuple(columns), rows=tuple(map(tuple, rows.values())))
    return Report(part="explore", tables=(table,))


def _opened(path: Path) -> World:
    program, moment = load_program(POLICY), time_ns()
    state, places, _ = load_state(program, path, for_queries=True)
    return World(
        program=program, shown=POLICY, state=state, places=places, state_shown=path.name, moment=moment,
        request=request_of(program), caller=caller_of(program), engine=lambda: OpenEngine.of(policy_artifacts(program).program, index_document(program, state), moment),
    )  # fmt: skip


def _seconds(explored: World, made: MadeWorld, name: str, number: int) -> float:
    """Of a page about the n-th request of the data set."""
    user, table = made.requests[number]
    assignments = explored.rows.assignments
    held = assignments[number * 7 % len(assignments)]
    less = "assignments?" + urlencode({"principal": held.principal, "role": held.role})
    page, values = PAGES[name]
    said = {
        key: text.replace("ASSIGNMENT", less).replace("USER", user).replace("TABLE", table)
        for key, text in values.items()
    }
    begun = time.process_time()
    found = answer(explored, page, parse_qsl(urlencode(said)))
    spent = time.process_time() - begun
    if found is None or found.status != 200:
        raise WrongAnswerError(f"{name}: {found and found.text[-500:]}")
    return spent
