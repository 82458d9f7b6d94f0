"""Decisions in process: `Embedded` compared with the evaluator an expert would write for one operation, and with Cedar.

As child processes, `python bench/embedded.py memory ours POLICY STATE` and `… memory by_hand MODEL` measure memory, and
`… first FOLDER` times a first decision.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from masks import Masks
from measure import Contestant, Report, Spread, Table, Target, race, resident

SINGLES = 2_000
MANY = 100_000
SHIPPED = "gravitino/1.1.0"
STATE = "state.yaml"

HAND, CHECK, LOAD = "by hand, bit masks", "Embedded.check", "Embedded.check, the policy's own row `load`"
REQUEST, BATCHES = "Embedded.check, a Request", "Embedded.check_many, batches of 100"
HAND_LOOP, CHECK_MANY = f"by hand, a loop over {MANY:,}", f"Embedded.check_many, {MANY:,} requests"
COLUMNS = f"decide_columns, {MANY:,} rows"
CEDAR = "cedarpy, all entities parsed before"


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Every contestant at every size."""
    from prepared import Prepared

    raced: dict[tuple[str, str], Spread] = {}
    memory: dict[str, dict[str, Spread]] = {}
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        folder = Path(name)
        for size in sizes:
            prepared = Prepared(size=size, folder=folder)
            raced |= race(_in_process(prepared), repetitions)
            cedar = _cedar(prepared) if size == "S" else []
            raced |= race(cedar, min(repetitions, 3)) if cedar else {}
            memory[size] = _memory(prepared, min(repetitions, 3))
        first = _first(folder, repetitions)
    rates = {size: {name: raced[name, size] for name, of in raced if of == size} for size in sizes}
    speed = Table(
        title="Decisions a second in process: median of the repetitions (min..max)",
        columns=("contestant", *sizes),
        rows=tuple(
            (name, *(rates[size][name].text() if name in rates[size] else "" for size in sizes))
            for name in dict.fromkeys(name for of in rates.values() for name in of)
        ),
    )
    held = Table(
        title="Memory in process (RSS beyond the imports, MiB)",
        columns=("contestant", *sizes),
        rows=tuple((who, *(memory[size][who].text() for size in sizes)) for who in ("ours", "by hand")),
    )
    targets = [target for size in sizes for target in _targets(size, rates[size])]
    size = sizes[-1]
    targets += [
        Target(
            what=f"{size}: memory, Embedded / by hand",
            spread=memory[size]["ours"].over(memory[size]["by hand"]),
            wanted=1.5,
            sense="at most",
        ),
        Target(what="first decision after connect()", spread=first, wanted=150, sense="at most", digits=0, unit=" ms"),
    ]
    return Report(part="embedded", tables=(speed, held), targets=tuple(targets))


def _targets(size: str, rates: Mapping[str, Spread]) -> list[Target]:
    wanted = [
        ("a decision, Embedded / by hand", CHECK, HAND, 0.5),
        ("a decision, of a Request / of names", REQUEST, CHECK, 0.8),
        ("a decision, of a batch of 100 / of names", BATCHES, CHECK, 1.0),
        (f"{MANY:,} decisions, check_many / a loop by hand", CHECK_MANY, HAND_LOOP, 2.0),
        ("a decision, Embedded / cedarpy", CHECK, CEDAR, 4.0),
    ]
    return [
        Target(what=f"{size}: {what}", spread=_over(rates[ours], rates[theirs]), wanted=least, sense="at least")
        for what, ours, theirs, least in wanted
        if theirs in rates
    ]


def _over(ours: Spread, theirs: Spread) -> Spread:
    count = min(len(ours.values), len(theirs.values))
    return Spread(values=ours.values[:count]).over(Spread(values=theirs.values[:count]))


def _in_process(prepared: Any) -> list[Contestant]:
    import pyarrow as pa

    from privtab import Entity, Request
    from privtab.client.embedded import Embedded

    world, size = prepared.world, prepared.size
    bundles = prepared.ours()
    masks = Masks(world.grants, {user: world.all_roles(user) for user in world.roles_of})
    client = Embedded(bundles["policy"], bundles["state"])
    asked = [(user, f"table:{table}") for user, table in world.requests]
    times = MANY // len(world.requests)
    pairs = list(world.requests) * times
    many = [Request(user=user, action="select", resource=Entity("table", table)) for user, table in pairs]
    few = many[: len(world.requests)]
    truth = list(world.may_select) * times
    check, allow = client.check, masks.allow
    found = [
        Contestant(size=size, name=HAND, run=lambda: [allow(u, t) for u, t in world.requests], truth=world.may_select),
        Contestant(
            size=size, name=CHECK, run=lambda: [check(u, "select", t) for u, t in asked], truth=world.may_select
        ),
        Contestant(size=size, name=LOAD, run=lambda: [check(u, "load", t) for u, t in asked], truth=world.may_load),
        Contestant(size=size, name=REQUEST, run=lambda: [check(one) for one in few], truth=world.may_select),
        Contestant(
            size=size,
            name=BATCHES,
            run=lambda: [a for n in range(0, len(few), 100) for a in client.check_many(few[n : n + 100])],
            truth=world.may_select,
        ),
        Contestant(size=size, name=HAND_LOOP, run=lambda: [allow(u, t) for u, t in pairs], truth=truth),
        Contestant(size=size, name=CHECK_MANY, run=lambda: client.check_many(many), truth=truth),
    ]
    batches = client.batches()
    users, tables = pa.array([user for user, _ in pairs]), pa.array([table for _, table in pairs])

    def columns() -> Sequence[bool]:
        answers: list[bool] = batches.decide_columns(users, tables, action="select", type="table").allowed.tolist()
        return answers

    return [*found, Contestant(size=size, name=COLUMNS, run=columns, truth=truth)]


def _cedar(prepared: Any) -> list[Contestant]:
    """The contestant for Cedar; none if cedarpy is not installed."""
    try:
        cedarpy = importlib.import_module("cedarpy")
    except ImportError:
        return []
    from cedar import entities, policies, request

    world = prepared.world
    known = cedarpy.Entities.from_json_str(json.dumps(entities(world)))
    rules = cedarpy.PolicySet.from_str(policies())
    asked = [request(user, table) for user, table in world.requests[:SINGLES]]

    def run() -> list[bool]:
        return [cedarpy.is_authorized(one, rules, known).allowed for one in asked]

    return [Contestant(size=prepared.size, name=CEDAR, run=run, truth=world.may_select[:SINGLES])]


def _memory(prepared: Any, repetitions: int) -> dict[str, Spread]:
    """Memory of each side, measured in a new process."""
    world, bundles = prepared.world, prepared.ours(everything=False, members=False)
    model = prepared.folder / f"{prepared.size}-model.json"
    roles = {user: sorted(world.all_roles(user)) for user in world.roles_of}
    model.write_bytes(_json({"grants": world.grants, "roles": roles}))

    def ours() -> float:
        return _child("memory", "ours", str(bundles["policy"]), str(bundles["state"]))

    return {
        "ours": Spread(values=tuple(ours() for _ in range(repetitions))),
        "by hand": Spread(values=tuple(_child("memory", "by_hand", str(model)) for _ in range(repetitions))),
    }


def _first(folder: Path, repetitions: int) -> Spread:
    """Milliseconds from `connect()` to the end of the first decision, for a shipped policy with its sample state."""
    from privtab.bundle import state_bundle
    from privtab.pipeline import find_policy, load_program, policy_artifacts
    from privtab.state.load import load_raw_state, validate

    program = load_program(SHIPPED)
    state, _ = validate(program, load_raw_state(find_policy(SHIPPED).parent / STATE))
    shipped = folder / "shipped"
    shipped.mkdir()
    (shipped / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (shipped / "state.tar.gz").write_bytes(state_bundle(program, state))
    return Spread(values=tuple(_child("first", str(shipped)) for _ in range(repetitions)))


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# --- children --------------------------------------------------------------------------------------------------------


def _child(*arguments: str) -> float:
    command = [sys.executable, __file__, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _settled() -> float:
    """Resident memory in MiB, after memory that the allocator holds in reserve is returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident(int(Path("/proc/self").resolve().name))


def _memory_of(load: Callable[[], object]) -> float:
    before = _settled()
    kept = load()
    used = _settled() - before
    assert kept is not None
    return used


def _by_hand(path: str) -> Masks:
    model = json.loads(Path(path).read_bytes())
    return Masks(model["grants"], model["roles"])


def _main(arguments: Sequence[str]) -> None:
    from privtab.client import connect
    from privtab.client.embedded import Embedded

    match arguments:
        case ["memory", "ours", policy, state]:
            sys.stdout.write(str(_memory_of(lambda: Embedded(policy, state))))
        case ["memory", "by_hand", model]:
            sys.stdout.write(str(_memory_of(lambda: _by_hand(model))))
        case ["first", folder]:
            started = time.perf_counter()
            connect(folder).check("ann", "load", "table:m/c/s/t")
            sys.stdout.write(str((time.perf_counter() - started) * 1000))
        case _:
            raise SystemExit(2)


if __name__ == "__main__":
    _main(sys.argv[1:])
