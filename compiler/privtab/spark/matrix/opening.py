"""From a policy and a state, however they are given, to the arrays of a matrix."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.engines.index import Index
from privtab.errors import FileError, StateInvalid, UsageError
from privtab.ir.nodes import Program
from privtab.request import hint
from privtab.spark.matrix.people import Subject
from privtab.spark.matrix.world import World
from privtab.spark.policies import OpenPolicy
from privtab.spark.states import bundled, is_bundle, whole
from privtab.state.nodes import Assignment, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROBE = "\x00"
"""Begins the names of the users that stand for groups: no state can name them."""
LOCAL = 20_000_000
"""Rows of a state that are brought to the driver; more have no place on an executor either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A state as the matrix takes it: its rows, or, of a bundle, the index alone."""

    rows: State | None
    index: Index | None
    program: Program | None


def open_state(policy: OpenPolicy, state: object, spark: SparkSession | None = None) -> Source:
    """The state from whatever stands for it; a session is needed for what only Spark can read.

    Raises UsageError for what is no state or is too large for one process, StateInvalid where wrong rows may carry a denial.
    """
    if isinstance(state, State):
        return Source(rows=state, index=None, program=policy.checked("a state"))
    if isinstance(state, str | os.PathLike):
        path = Path(state)
        if not path.exists():
            raise FileError(f"no such state: {path}")
        if is_bundle(path):
            return Source(rows=None, index=whole(bundled(policy, str(path))), program=policy.program)
        if not (path / "_MANIFEST.json").is_file():
            program = policy.checked("a state")
            return Source(rows=_checked(program, path), index=None, program=program)
    if spark is None:
        raise UsageError("this state is read by Spark: give a session, or a file, a folder or a bundle")
    from privtab.spark.state.tables import SparkState, program_of

    found = SparkState.of(spark, policy.program or policy, state)
    rows = found.local(LOCAL)
    if rows is None:
        raise UsageError(
            f"the state has {sum(found.counts().values()):,} rows, more than the {LOCAL:,} that one process takes: "
            "ask shard by shard"
        )
    return Source(rows=rows, index=None, program=program_of(policy.program or policy))


def open_world(
    policy: OpenPolicy,
    source: Source,
    *,
    users: Collection[str] | None = None,
    principals: Collection[str] | None = None,
) -> World:
    """The arrays for some users, some principals, or every user that the state names."""
    groups = _group_names(principals)
    index = source.index if source.rows is None else _index(source, groups)
    assert index is not None
    wanted = _wanted(source, index, users, principals)
    through = _through(source.rows, policy.json) if source.rows is not None else {}
    takes_groups = "request" in policy.json["semantics"]["groups"]
    subjects = []
    for principal in dict.fromkeys(wanted):
        kind, _, name = principal.partition(":")
        user = name if kind == "user" else None
        match kind:
            case "user":
                own, scopes = index.principals(name), index.scopes(name)
            case "role":
                own, scopes = (principal,), {}
            case _ if takes_groups:
                own, scopes = index.principals(_PROBE + name, [name]), index.scopes(_PROBE + name, [name])
            case _:
                own, scopes = index.principals(_PROBE + name), index.scopes(_PROBE + name)
        held = through.get(principal, {})
        subjects.append(Subject(principal=principal, user=user, principals=own, scopes=scopes, groups=held))
    return World(policy.json, index, subjects)


def everybody(source: Source, index: Index) -> list[str]:
    """Every user that the state names, sorted; of a bundle those that hold anything."""
    if source.rows is None or source.program is None:
        found = {*index.users, *index.scoped, *index.service_admins}
        found |= {user for members in index.members.values() for named in members.values() for user in named}
        return sorted(found)
    state, program = source.rows, source.program
    found = {user for user, _ in state.members} | {user for user, _ in state.memberships} | set(state.service_admins)
    named = {a.principal for a in state.assignments} | {g.grantee for g in state.grants} | {o for _, o in state.owners}
    found |= {principal[5:] for principal in named if principal.startswith("user:")}
    kinds = {kind.name for kind in program.entities.values() if kind.principal == "user"}
    entities = (g.entity for g in state.grants if g.entity.type in kinds)
    owned = (entity for entity, _ in state.owners if entity.type in kinds)
    joined = (entity for _, entity in state.members if entity.type in kinds)
    scopes = (a.scope for a in state.assignments if a.scope is not None and a.scope.type in kinds)
    for group in (entities, owned, joined, scopes):
        found |= {entity.names[-1].replace("%2F", "/").replace("%25", "%") for entity in group if entity.names}
    return sorted(found)


def _wanted(
    source: Source, index: Index, users: Collection[str] | None, principals: Collection[str] | None
) -> Iterable[str]:
    if users is None and principals is None:
        return [f"user:{name}" for name in everybody(source, index)]
    found = [f"user:{user.removeprefix('user:')}" for user in _listed(users, "users")]
    for principal in _listed(principals, "principals"):
        kind, colon, name = principal.partition(":")
        if not (colon and name) or kind not in ("user", "group", "role"):
            raise UsageError(f"`{principal}` is no principal: write user:NAME, group:NAME or role:NAME" + _kind(kind))
        if kind == "group" and source.rows is None and principal[6:] not in index.groups:
            raise UsageError(f"a state bundle does not say what `{principal}` holds: give the rows of the state")
        found.append(principal)
    return found


def _listed(names: Collection[str] | None, what: str) -> Collection[str]:
    if isinstance(names, str):
        raise UsageError(f"{what} is the text `{names}`: give a list")
    return names or ()


def _kind(kind: str) -> str:
    return hint(kind, ("user", "group", "role"))


def _group_names(principals: Collection[str] | None) -> list[str]:
    return [p[6:] for p in _listed(principals, "principals") if p.startswith("group:")]


def _index(source: Source, groups: Iterable[str]) -> Index:
    """The index of a state in which a user of its own is in each of some groups."""
    from privtab.state.index import index

    assert source.rows is not None
    assert source.program is not None
    probes = tuple((_PROBE + group, group) for group in groups)
    rows = replace(source.rows, memberships=(*source.rows.memberships, *probes)) if probes else source.rows
    if probes and "request" in source.program.semantics.groups:
        # The index knows the groups of a request by what is said of them somewhere.
        known = tuple(Assignment(principal=f"group:{group}", role=_PROBE) for _, group in probes)
        rows = replace(rows, assignments=(*rows.assignments, *known))
    return Index(index(source.program, rows))


def _through(state: State, program: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By user (`user:…`) the roles that he holds through a group alone, each with the first such group."""
    held: dict[str, set[str]] = defaultdict(set)
    for assignment in state.assignments:
        held[assignment.principal].add(f"role:{assignment.role}")
    found: dict[str, dict[str, str]] = defaultdict(dict)
    if "state" not in program["semantics"]["groups"]:
        return found
    for user, group in sorted(state.memberships, key=lambda pair: pair[1]):
        principal = f"user:{user}"
        for role in held.get(f"group:{group}", ()):
            if role not in held.get(principal, ()):
                found[principal].setdefault(role, f"group:{group}")
    return found


def _checked(program: Program, path: Path) -> State:
    """The good rows of files; raises StateInvalid where a wrong one may carry a denial."""
    from privtab.state.load import load
    from privtab.state.validate import validate

    state, findings = validate(program, load(path))
    denies = program.semantics.deny != "none"
    stopping = tuple(
        f
        for f in findings
        if f.severity == "error"
        and denies
        and not (f.place.row and f.place.table in ("members", "owners", "service_admins"))
        and not (f.place.row and f.place.table == "grants" and str(f.row.get("effect", "")).lower() == "allow")
    )
    if stopping:
        raise StateInvalid(stopping)
    return state
