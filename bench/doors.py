"""One list of 10,000 tables at a door: the policy's one decision, a hand-written Rego, a decision for each by `with`, and a request for each."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import Caller, Report, Spread, Table, WrongAnswerError

from privtab.bundle.pack import state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import from_tables, validate
from privtab_connect.doors.opened import opened

TABLES, SCHEMAS, USERS, ROLES = 10_000, 20, 1_000, 100
FEW = 1_000
"""Tables for what takes the square of their number."""
USER = "u1"
DOOR = "privtab/trino/doors/trino"


def report(_: Sequence[str], repetitions: int) -> Report:
    """Seconds for the list, by the way it is answered."""
    program = load_program("trino/476")
    rows, hand = _world()
    state, findings = validate(program, from_tables(rows, "rows"))
    if findings:
        raise WrongAnswerError(str(findings[0]))
    listed = [{"table": _table(number)} for number in range(TABLES)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        artifacts = policy_artifacts(program, doors=[opened("trino", program)])
        (folder / "policy.tar.gz").write_bytes(artifacts.bundle())
        (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
        (folder / "hand.json").write_text(json.dumps({"by_hand_door_state": hand}), encoding="utf-8")
        bundles = {part: folder / f"{part}.tar.gz" for part in ("policy", "state")}
        rego = Path(__file__).parent / "rego" / "by_hand_door.rego"
        with OpaServer(bundles, paths=[rego, folder / "hand.json"]) as opa:
            caller = Caller(opa.url)
            whole = _request({"operation": "FilterTables", "filterResources": listed})
            singles = [_request({"operation": "FilterTables", "resource": resource}) for resource in listed]
            few = _request({"operation": "FilterTables", "filterResources": listed[:FEW]})

            def one_by_one() -> list[int]:
                return [n for n, single in enumerate(singles) if caller.ask(f"{DOOR}/allow", single)]

            ways: dict[str, tuple[int, Callable[[], list[int]]]] = {
                "the door: one decision of the policy": (TABLES, lambda: caller.ask(f"{DOOR}/batch", whole)),
                "hand-written Rego for this operation": (TABLES, lambda: caller.ask("by_hand_door/batch", whole)),
                "hand-written, with denials, owners, groups, what lies below, and odd names denied": (
                    TABLES,
                    lambda: caller.ask("by_hand_door/seen", whole),
                ),
                "the door: a request for each": (TABLES, one_by_one),
                "hand-written, a decision for each by `with`": (FEW, lambda: caller.ask("by_hand_door/each", few)),
            }
            truth = caller.ask("by_hand_door/batch", whole)
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for repetition in range(repetitions + 1):
                for way, (size, answer) in ways.items():
                    started = time.perf_counter()
                    found = answer()
                    taken = time.perf_counter() - started
                    if sorted(found) != [position for position in truth if position < size]:
                        raise WrongAnswerError(f"{way}: {len(found)} tables are shown")
                    if repetition:
                        seconds[way].append(taken)
    table = Table(
        title=f"Tables in a list, of which the user may see {len(truth) / TABLES:.0%}",
        columns=("way", "tables", "seconds"),
        rows=tuple((way, f"{ways[way][0]:,}", Spread(values=tuple(t)).text(2)) for way, t in seconds.items()),
    )
    return Report(part="doors", tables=(table,))


def _table(number: int) -> dict[str, str]:
    return {"catalogName": "lake", "schemaName": f"s{number % SCHEMAS}", "tableName": f"t{number}"}


def _request(action: object) -> object:
    identity = {"user": USER, "groups": []}
    return {"context": {"identity": identity, "softwareStack": {"trinoVersion": "476"}}, "action": action}


def _world() -> tuple[dict[str, list[dict[str, str]]], dict[str, object]]:
    """The rows of a state, and the same for the hand-written Rego: roles see half of the schemas, and some further tables."""
    assignments = [(f"user:u{user}", f"r{(user * k) % ROLES}") for user in range(USERS) for k in (1, 7)]
    grants = [(f"role:r{role}", f"schema:lake/s{role % (SCHEMAS // 2)}") for role in range(ROLES)]
    grants += [
        (f"role:r{n % ROLES}", "table:{catalogName}/{schemaName}/{tableName}".format(**_table(n)))
        for n in range(0, TABLES, 3)
    ]
    shows: dict[str, dict[str, bool]] = {}
    for principal, entity in grants:
        shows.setdefault(entity.partition(":")[2], {})[principal] = True
    principals: dict[str, list[str]] = {}
    for user, role in assignments:
        principals.setdefault(user.removeprefix("user:"), []).append(f"role:{role}")
    rows = {
        "assignments": [{"principal": user, "role": role} for user, role in dict.fromkeys(assignments)],
        "grants": [
            {"grantee": p, "effect": "allow", "privilege": "SELECT", "entity": e} for p, e in dict.fromkeys(grants)
        ],
    }
    return rows, {"shows": shows, "principals": principals, "denies": {}, "owners": {}, "below": {}}
