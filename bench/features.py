"""What the newer conditions cost in OPA: `or below` beside the plain condition, and types that nest beside a fixed depth."""

from __future__ import annotations

import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from measure import Caller, Contestant, Report, Spread, Table, Target, WrongAnswerError, race
from prepared import serve, tables
from workload import Truth, World, ancestors, world

from privtab.base.request import Entity
from privtab.bundle import state_bundle
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import from_tables, validate

BATCH = 1_000
DEEPEST = 8
PLAIN, BELOW = "plain", "`or below`"
FIXED, FIXED_DEEP = "fixed depth, 4 levels", "fixed depth, 7 levels"
NESTED = "nested, 4 to 10 levels, 7 on average"
POLICY = """\
privtab: 1
system: {system}
version: "1"
entities: {entities}
{types}privileges: [{privileges}]
semantics: {{inheritance: down, deny: overrides}}
tables:
{rows}"""
ROWS = {
    "flat": """\
  schema:
    see: SELECT_TABLE (schema)
    browse: SELECT_TABLE (schema or below)
  table:
    load: USE_CATALOG (catalog) and SELECT_TABLE (table)
""",
    "long": """\
  table:
    load: USE_CATALOG (catalog) and SELECT_TABLE (table)
""",
    "deep": """\
  table:
    load: USE_CATALOG (first folder) and SELECT_TABLE (table)
""",
}
ENTITIES = {
    "flat": "{metalake: {catalog: {schema: {table: }}}}",
    "long": "{metalake: {catalog: {schema: {first: {second: {third: {table: }}}}}}}",
    "deep": "{metalake: {folder: {table: }}}",
}
TYPES = {
    "flat": ("metalake", "catalog", "schema", "table"),
    "long": ("metalake", "catalog", "schema", "table"),
    "deep": ("metalake", "folder", "folder", "table"),
}


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Both pairs of contestants at every size, all in one race."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-bench-")))
        contestants: list[Contestant] = []
        for size in sizes:
            made = world(size)
            for system in ENTITIES:
                program = _program(system, made, folder)
                bundles = _bundles(program, made, folder / f"{size}-{system}")
                opa = Caller(stack.enter_context(serve(bundles)).url)
                contestants += _contestants(size, system, program, made, opa)
        raced = race(contestants, repetitions)
    names = dict.fromkeys(contestant.name for contestant in contestants)
    shown = Table(
        title="Decisions a second in OPA, in batches: median of the repetitions (min..max)",
        columns=("contestant", *sizes),
        rows=tuple((name, *(raced[name, size].text() for size in sizes)) for name in names),
    )
    return Report(part="features", tables=(shown,), targets=tuple(_targets(sizes, raced)))


def _targets(sizes: Sequence[str], raced: dict[tuple[str, str], Spread]) -> list[Target]:
    limits = ((BELOW, PLAIN, 0.7), (NESTED, FIXED, 0.8), (NESTED, FIXED_DEEP, 0.8))
    return [
        Target(
            what=f"{size}: {name} / {other}",
            spread=raced[name, size].over(raced[other, size]),
            wanted=wanted,
            sense="at least",
        )
        for size in sizes
        for name, other, wanted in limits
    ]


def _program(system: str, made: World, folder: Path) -> Program:
    privileges = ", ".join(sorted({privilege for _, _, privilege, _ in made.grants}))
    types = f"types: {{folder: {{nested: {DEEPEST}}}}}\n" if system == "deep" else ""
    text = POLICY.format(
        system=system, entities=ENTITIES[system], types=types, privileges=privileges, rows=ROWS[system]
    )
    path = folder / f"{system}.yaml"
    path.write_text(text, encoding="utf-8")
    return load_program(path)


def _entity(system: str, path: str) -> Entity:
    """The entity at a path of the workload. In nested folders, a table lies in two to eight of them, in as many as `long` has on average."""
    names = path.split("/")
    if system != "flat" and len(names) == 4:
        schema = "/".join(names[:3])
        names[3:3] = ["d"] * (zlib.crc32(schema.encode()) % (DEEPEST - 1) if system == "deep" else 3)
    return Entity(TYPES[system][path.count("/")], "/".join(names))


def _bundles(program: Program, made: World, folder: Path) -> dict[str, Path]:
    folder.mkdir()
    rows = {name: rows for name, rows in tables(made).items() if name not in ("members", "owners")}
    rows["grants"] = [
        row | {"entity": str(_entity(program.system, path))}
        for row, (_, _, _, path) in zip(rows["grants"], made.grants, strict=True)
    ]
    state, findings = validate(program, from_tables(rows, "workload"))
    if findings:
        raise WrongAnswerError(f"the workload is not a clean state: {findings[0].message}")
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
    return {name: folder / f"{name}.tar.gz" for name in ("policy", "state")}


def _contestants(size: str, system: str, program: Program, made: World, opa: Caller) -> list[Contestant]:
    item_keys = vocabulary(program).item_keys

    def asked(action: str, paths: Sequence[str]) -> Callable[[], list[bool]]:
        entities = [_entity(system, path) for path in paths]
        pairs = [[user, item_keys(entity)] for (user, _), entity in zip(made.requests, entities, strict=True)]
        shared = {"action": {"name": action}, "resource": {"type": entities[0].type}}
        return lambda: [
            answer
            for start in range(0, len(pairs), BATCH)
            for answer in opa.ask(f"privtab/{system}/decisions", shared | {"items": pairs[start : start + BATCH]})
        ]

    truth = Truth(made)
    named = [table for _, table in made.requests]
    load = [
        truth.holds(user, "USE_CATALOG", ancestors(table)[1]) and truth.holds(user, "SELECT_TABLE", table)
        for user, table in made.requests
    ]
    if system != "flat":
        return [
            Contestant(name=NESTED if system == "deep" else FIXED_DEEP, size=size, run=asked("load", named), truth=load)
        ]
    schemas = [ancestors(table)[2] for table in named]
    below: dict[str, set[str]] = defaultdict(set)
    for _, effect, privilege, path in made.grants:
        if effect == "allow" and privilege == "SELECT_TABLE" and path.count("/") == 3:
            below[path.rpartition("/")[0]].add(path)
    users = [user for user, _ in made.requests]
    see = [truth.holds(user, "SELECT_TABLE", schema) for user, schema in zip(users, schemas, strict=True)]
    browse = [
        seen or any(truth.holds(user, "SELECT_TABLE", table) for table in below[schema])
        for seen, user, schema in zip(see, users, schemas, strict=True)
    ]
    return [
        Contestant(name=FIXED, size=size, run=asked("load", named), truth=load),
        Contestant(name=PLAIN, size=size, run=asked("see", schemas), truth=see),
        Contestant(name=BELOW, size=size, run=asked("browse", schemas), truth=browse),
    ]
