"""Open a matrix from a policy and a state in any supported form, with the entities that the caller names, or all that the state does."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, cast

from privtab.base import (
    PRINCIPAL_KINDS,
    Entity,
    FileError,
    HasWindows,
    Locations,
    UsageError,
    bare_name,
    hint,
    is_wildcard,
    strict_loads,
)
from privtab.engines import Index
from privtab.ir import Feature, Program
from privtab.state import Holdings, State, as_written, index_document, with_derived_rows
from privtab_analysis.entitlements.subjects import Holding, Subject
from privtab_analysis.entitlements.universe import Universe, universe
from privtab_analysis.entitlements.universe import users as users_of
from privtab_spark.matrix import Matrix
from privtab_spark.matrix.question import Question, listed
from privtab_spark.moments import Moment, moment_of, state_at
from privtab_spark.policies import OpenPolicy
from privtab_spark.state.bundles import bundled, is_bundle, require_complete
from privtab_spark.states import LOCAL, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.state import SparkState
    from privtab_spark.states import Timed


EVERY = 1 << 40
SHIPPED = 4_000_000
"""Most rows of a state whose index every executor holds; a larger one is processed in portions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSource:
    """A state in one of three forms: rows, the index of a bundle, or Spark tables if it is large."""

    rows: State | None = None
    index: Index | None = None
    tables: SparkState | None = None
    timed: object = None
    """The state with the times in which its rows hold, if some hold for a time only."""


def open_state(
    policy: OpenPolicy, state: object, spark: SparkSession | None = None, *, at: Moment = None, most: int | None = None
) -> StateSource:
    """Open a state given in any supported form, at a moment; a session is needed for forms that only Spark can read.

    `most`: the most rows that are collected on the driver, unless portions do not support the policy; by default as many as it holds.

    Raises UsageError for anything else, and StateInvalid if invalid rows may affect a denial.
    """
    try:
        return _opened_state(policy, state, spark, most)
    except HasWindows as error:
        timed = cast("Timed", error.state)
        return replace(_opened_state(policy, state_at(timed, moment_of(at)), spark, most), timed=timed)


def _opened_state(policy: OpenPolicy, state: object, spark: SparkSession | None, most: int | None) -> StateSource:
    if isinstance(state, str | os.PathLike) and is_bundle(state):
        return StateSource(index=require_complete(bundled(policy, os.fspath(state))))
    policy.checked("a state")
    found = opened(policy, state, spark)
    limit = EVERY if beyond_portions(policy) else LOCAL if most is None else min(most, LOCAL)
    rows = found.plain("Spark") if isinstance(found, State) else found.local(limit)
    if rows is None:
        return StateSource(tables=found)
    return StateSource(rows=rows if rows is found else as_written(policy.checked("a state"), rows))


def open_matrix(
    policy: OpenPolicy,
    source: StateSource,
    question: Question,
    *,
    users: Collection[str] | None = None,
    principals: Collection[str] | None = None,
) -> Matrix:
    """The matrix for the given users and principals, or for every user that the state names.

    Raises UsageError for a wrong question or invalid principals, and for a state too large for one process.
    """
    subjects_asked = requested_principals(users, principals)
    if source.tables is not None:
        raise UsageError(
            f"the state has {sum(source.tables.counts().values()):,} rows, more than the {LOCAL:,} that one process "
            "can hold: use `entitlements`, which processes it in portions"
        )
    if subjects_asked is None:
        subjects_asked = [f"user:{name}" for name in user_names_of(policy, source)]
    nests_roles = "roles" in policy.json["semantics"].get("hierarchy", ())
    through: Mapping[str, Mapping[str, tuple[Holding, ...]]] = {}
    holdings: Holdings | None = None
    if source.rows is not None:
        program = policy.checked("a state")
        found, holdings = Index(index_document(program, source.rows)), Holdings(program, source.rows)
        users_asked = [principal for principal in subjects_asked if principal.startswith("user:")]
        through = _roles_through_groups(program, with_derived_rows(program, source.rows), users_asked)
    else:
        assert source.index is not None
        found = source.index
    found.everyone = policy.everyone
    subjects = []
    for principal in subjects_asked:
        kind, _, name = principal.partition(":")
        match kind:
            case "user":
                held_principals, scopes = found.principals(name), found.scopes(name)
            case "role" if not nests_roles:
                held_principals, scopes = (principal,), {}
            case _ if holdings is not None:
                everywhere, scoped, _ = holdings.of_principal(principal, everywhere=True)
                subjects.append(Subject.holding(principal, None, everywhere, scoped, policy.as_program.roles))
                continue
            case "group" if name in found.groups:
                held_principals, scopes = found.groups[name], found.group_scoped.get(name, {})
            case _:
                raise UsageError(
                    f"a state bundle does not contain what `{principal}` holds: give the rows of the state"
                )
        user = name if kind == "user" else None
        of_groups = through.get(principal, {})
        subjects.append(
            Subject(principal=principal, user=user, principals=held_principals, scopes=scopes, through=of_groups)
        )
    return Matrix(policy.json, found, subjects, question)


def beyond_portions(policy: OpenPolicy) -> tuple[Feature, ...]:
    """The features for which a matrix is not computed in portions."""
    # No request of a matrix names active roles.
    return tuple(feature for feature in policy.beyond_arrays if feature is not Feature.ACTIVE_WITH_HIERARCHY)


def requested_principals(users: Collection[str] | None, principals: Collection[str] | None) -> list[str] | None:
    """The named principals without duplicates; None: every user. Raises UsageError for invalid ones."""
    if users is None and principals is None:
        return None
    found = [f"user:{bare_name(user, 'user')}" for user in listed(users or (), "users")]
    for principal in listed(principals or (), "principals"):
        kind, colon, name = principal.partition(":")
        if not (colon and name) or kind not in PRINCIPAL_KINDS:
            raise UsageError(
                f"`{principal}` is not a principal: write user:NAME, group:NAME or role:NAME"
                + hint(kind, PRINCIPAL_KINDS)
            )
        found.append(principal)
    for principal in found:
        if is_wildcard(principal.partition(":")[2]):
            raise UsageError(f"`{principal}` is not a principal: there are no wildcards; leave it out for every user")
    return list(dict.fromkeys(found))


def user_names_of(policy: OpenPolicy, source: StateSource) -> list[str]:
    """Every user that the state names, sorted; for a bundle, every user that holds anything."""
    if source.rows is not None:
        return sorted(users_of(policy.as_program, source.rows))
    assert source.index is not None
    return sorted(_holders(source.index))


def _holders(index: Index) -> set[str]:
    members = (user for by_path in index.members.values() for users in by_path.values() for user in users)
    return {
        *index.users,
        *index.scoped,
        *index.service_admins,
        *index.user_attributes,
        *members,
    }


def _roles_through_groups(
    program: Program, state: State, users_asked: Sequence[str]
) -> dict[str, dict[str, tuple[Holding, ...]]]:
    """The roles held through a group, by user (`user:…`), each with all of its holdings, the user's own first."""
    assigned: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for principal, role, scope in state.texts("assignments", "principal", "role", "scope"):
        assigned[principal].append((f"role:{role}", scope or ""))
    found: dict[str, dict[str, list[Holding]]] = defaultdict(lambda: defaultdict(list))
    rows = list(state.texts("memberships", "user", "group"))
    links = {(f"user:{user}", group) for user, group in rows if "state" in program.semantics.groups}
    everyone = program.semantics.everyones
    everyone |= {group for member, group in rows if member == program.semantics.everybody}
    links |= {(user, group) for group in everyone for user in users_asked}
    for user, group in links:
        for role, scope in assigned.get(f"group:{group}", ()):
            found[user][role].append((f"group:{group}", scope))
    for principal, roles in found.items():
        for role, scope in assigned.get(principal, ()):
            if role in roles:
                roles[role].append(("", scope))
    return {
        principal_: {role: tuple(sorted(holdings)) for role, holdings in roles.items()}
        for principal_, roles in found.items()
    }


def of_source(policy: OpenPolicy, source: StateSource) -> list[str]:
    """The entities that a state names, with their containers and the entities without a name of their own; sorted."""
    program = policy.as_program
    if source.rows is not None:
        found = universe(program, source.rows)
    else:
        assert source.index is not None
        index = source.index
        where = Locations(policy.vocabulary.shapes, index.places, index.containers)
        found = Universe(program, map(Entity.parse, _of_index(index)), where)
    return sorted(map(str, found))


def _of_index(index: Index) -> set[str]:
    named = {f"{type_}:{path}" for type_, table in index.tables.items() for path in table}
    named |= {f"{type_}:{path}" for type_, table in index.members.items() for path in table}
    named |= {*index.places, *index.entity_attributes}
    return named | {key for scopes in index.scoped.values() for key in scopes}


def texts(entities: Iterable[object], places: Iterable[str] = repeat("")) -> list[str]:
    """Entities as `type:path`; raises UsageError for anything else, with its place in front."""
    if isinstance(entities, str):
        raise UsageError(f"entities is the text `{entities}`: give a list, or a DataFrame")
    found = []
    for entity, place in zip(entities, places, strict=False):
        text = str(entity) if isinstance(entity, Entity) else entity
        if not isinstance(text, str) or text.find(":") < 1:
            raise UsageError(f"{place}`{text}` is not an entity: write type:path, as in table:m/c/s/t")
        found.append(text)
    return list(dict.fromkeys(found))


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a text file with their numbers; raises FileError, with the line number for invalid UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise FileError(f"{path}:{number}: not UTF-8: save the file as UTF-8") from error
        if text:
            yield number, text


def from_file(path: Path) -> list[str]:
    """Entities from a file: CSV or Parquet with a column `entity` or with `type` and `path`, JSON, or text with one on each line."""
    if not path.exists():
        raise FileError(f"no such file of entities: {path}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".csv":
            from pyarrow import csv, string

            # Read names as strings, so that names of digits do not become numbers.
            texts_of = dict.fromkeys(("entity", "type", "path"), string())
            table = csv.read_csv(
                path, convert_options=csv.ConvertOptions(strings_can_be_null=True, column_types=texts_of)
            )
        elif suffix == ".parquet" or path.is_dir():
            from pyarrow import parquet

            table = parquet.read_table(path)
        elif suffix == ".json":
            return texts(strict_loads(path.read_bytes()))
        else:
            found = dict(lines(path))
            return texts(found.values(), (f"{path}:{number}: " for number in found))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: {error}") from error
    names = set(table.column_names)
    if "entity" in names:
        return texts(text for text in table.column("entity").cast("string").to_pylist() if text is not None)
    if {"type", "path"} <= names:
        pairs = zip(table.column("type").to_pylist(), table.column("path").cast("string").to_pylist(), strict=True)
        return texts(f"{kind}:{path_}" for kind, path_ in pairs if kind is not None and path_ is not None)
    raise UsageError(
        f"{path}: no column `entity`, and not both `type` and `path`; there are: {', '.join(sorted(names))}"
    )
