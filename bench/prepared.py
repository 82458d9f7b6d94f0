"""The contestants' bundles for a world: our compiled policy with its state, and the hand-written policy with its data."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from measure import WrongAnswerError
from workload import METALAKE, World, world

from privtab.bundle import state_bundle
from privtab.bundle.archive import json_bytes, packed_archive
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import find_policy, load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

T = TypeVar("T")

POLICY = "gravitino/1.1.0"
SELECT = "USE_CATALOG (catalog) and USE_SCHEMA (schema) and SELECT_TABLE (table)"
"""The condition of an additional row, that of the hand-written policy; the source document has no such row."""
BY_HAND = Path(__file__).resolve().parent / "rego" / "by_hand.rego"
TYPES = ("metalake", "catalog", "schema", "table")
QUIET = [
    "--set=bundles.policy.polling.min_delay_seconds=3600", "--set=bundles.policy.polling.max_delay_seconds=3600",
    "--set=bundles.state.polling.min_delay_seconds=3600", "--set=bundles.state.polling.max_delay_seconds=3600",
]  # fmt: skip
"""Settings that keep OPA from polling for bundles while it is measured."""


def entity(path: str) -> str:
    """An entity as written in a state.

    >>> entity("m/c1/s2")
    'schema:m/c1/s2'
    """
    return f"{TYPES[path.count('/')]}:{path}"


def policy_text(select: str = SELECT) -> str:
    """The shipped policy with one more row, and its condition."""
    text = find_policy(POLICY).read_text(encoding="utf-8")
    mark = "\n  table:\n"
    if text.count(mark) != 1:
        raise ValueError(f"{POLICY} has no single place for the row")
    return text.replace(mark, f"{mark}    select: {{requires: {select}, gate: none}}\n")


def program(select: str = SELECT) -> Program:
    """That policy, compiled."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.yaml"
        policy.write_text(policy_text(select), encoding="utf-8")
        return load_program(policy)


@dataclass(kw_only=True)
class Prepared:
    """Everything needed for a size, created once; `seconds` has the duration of each step."""

    size: str
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def world(self) -> World:
        """The world of this size."""
        return world(self.size)

    @cached_property
    def program(self) -> Program:
        """The policy."""
        return program()

    @cached_property
    def state(self) -> State:
        """The world as a validated state; all rows are valid."""
        raw = self._timed("read rows", lambda: from_tables(tables(self.world), "workload"))
        state, findings = self._timed("validate", lambda: validate(self.program, raw))
        if findings:
            raise WrongAnswerError(f"the workload is not a clean state: {findings[0].message}")
        return state

    def ours(self, *, everything: bool = True, members: bool = True) -> Mapping[str, Path]:
        """The bundles of the compiled policy; without `everything`, the state has no owners, like the hand-written data."""
        state = replace(
            self.state,
            owners=self.state.owners if everything else (),
            members=self.state.members if members else (),
        )
        name = f"ours-{everything}-{members}"
        return {
            "policy": self._bundle("ours-policy", lambda: policy_artifacts(self.program).bundle()),
            "state": self._bundle(name, lambda: state_bundle(self.program, state)),
        }

    def by_hand(self, *, members: bool = False) -> Mapping[str, Path]:
        """The bundles of the hand-written policy."""

        def policy() -> bytes:
            manifest = {"revision": "1", "roots": ["by_hand"], "rego_version": 1}
            return packed_archive({".manifest": json_bytes(manifest), "by_hand/by_hand.rego": BY_HAND.read_bytes()})

        def data() -> bytes:
            manifest = {"revision": "1", "roots": ["by_hand_state"], "rego_version": 1}
            document = by_hand_data(self.world, members=members)
            return packed_archive({".manifest": json_bytes(manifest), "by_hand_state/data.json": json_bytes(document)})

        return {
            "policy": self._bundle("by-hand-policy", policy),
            "state": self._bundle(f"by-hand-{members}", data),
        }

    def time_index(self, state: State) -> float:
        """Seconds to build the index of a state."""
        started = time.perf_counter()
        index_document(self.program, state)
        return time.perf_counter() - started

    def _bundle(self, name: str, make: Callable[[], bytes]) -> Path:
        path = self.folder / f"{self.size}-{name}.tar.gz"
        if not path.exists():
            path.write_bytes(self._timed(name, make))
        return path

    def _timed(self, step: str, make: Callable[[], T]) -> T:
        started = time.perf_counter()
        made = make()
        self.seconds[step] = time.perf_counter() - started
        return made


@contextmanager
def serve(bundles: Mapping[str, Path], *arguments: str) -> Iterator[OpaServer]:
    """Run an OPA with the bundles active; `arguments` are additional arguments of OPA."""
    with OpaServer(bundles, extra_args=(*QUIET, *arguments), timeout=300) as opa:
        yield opa


def tables(world: World) -> dict[str, list[dict[str, str]]]:
    """The world as the tables of a state."""
    group_assignments = [(f"group:{g}", role) for g, roles in world.group_roles.items() for role in roles]
    user_assignments = [(f"user:{u}", role) for u, roles in world.roles_of.items() for role in roles]
    return {
        "members": [{"user": user, "of": f"metalake:{METALAKE}"} for user in sorted(world.members)],
        "memberships": [{"user": u, "group": group} for u, groups in world.groups_of.items() for group in groups],
        "assignments": [{"principal": p, "role": role} for p, role in (*group_assignments, *user_assignments)],
        "grants": [
            {"grantee": f"role:{role}", "effect": effect, "privilege": privilege, "entity": entity(path)}
            for role, effect, privilege, path in world.grants
        ],
        "owners": [{"entity": entity(path), "owner": f"user:{owner}"} for path, owner in world.owners.items()],
    }


def by_hand_data(world: World, *, members: bool) -> dict[str, Any]:
    """The data of the hand-written policy, which needs no types or prefixes of names."""
    held: dict[str, dict[str, dict[str, dict[str, bool]]]] = {
        "allow": defaultdict(lambda: defaultdict(dict)),
        "deny": defaultdict(lambda: defaultdict(dict)),
    }
    for role, effect, privilege, path in world.grants:
        held[effect][privilege][path][role] = True
    roles = {user: sorted(world.all_roles(user)) for user in world.roles_of}
    document: dict[str, Any] = {"roles": {user: found for user, found in roles.items() if found}, **held}
    return document | ({"members": dict.fromkeys(sorted(world.members), True)} if members else {})
