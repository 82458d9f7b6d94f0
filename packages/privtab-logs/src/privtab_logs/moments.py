"""The policy and the state by which a logged decision was made: those given, a registry's revisions, or a store's at its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import (
    BrokenBundle,
    FileError,
    PolicyError,
    PrivtabError,
    RecentlyUsed,
    UsageError,
    parse_moment,
    sharded_revision,
)
from privtab.bundle import program_in
from privtab.client import ReadBundle
from privtab.engines import combined_document
from privtab.ir import Feature, Program
from privtab.pipeline import optimised, policy_artifacts
from privtab.state import PartText, RawState, UsedParts, as_written, from_tables, index_document, validate
from privtab_logs.deciding import Decider
from privtab_logs.schema import PARTS
from privtab_server.registry import Registry, Revision
from privtab_server.store.journal import Journal

MOST_OPEN = 6
"""Moments that are kept open."""


class Unknown(PrivtabError):
    """The policy or the state of a moment is not known."""


class Policy(NamedTuple):
    """A policy, and its program's JSON with its revision."""

    program: Program
    json: Mapping[str, Any]

    @classmethod
    def of(cls, program: Program) -> Policy:
        """The policy as it is compiled now."""
        return cls(program, policy_artifacts(program).program)

    @property
    def reads(self) -> UsedParts:
        """Return the parts of a state that the rules read, after the passes, as in a program that is read from a bundle."""
        return UsedParts.of(optimised(self.program))


class KnownState(NamedTuple):
    """The rows of a state, or the documents of its bundles, which are the index as one policy reads it."""

    rows: RawState | None = None
    documents: tuple[Mapping[str, Any], ...] = ()


PolicyAt = Callable[[str | None], Policy]
"""The policy of a revision. Raises Unknown."""
StateAt = Callable[[str | None], KnownState]
"""The state of a revision. Raises Unknown."""


@dataclass(kw_only=True)
class Moments:
    """Opens the policy and the state of each moment, and what is to be compared with it."""

    new: Policy
    policy: PolicyAt | None = None
    """None: what was recorded counts as what was decided."""
    state: StateAt | None = None
    new_state: KnownState | None = None
    """None: the state of each moment."""
    label: Callable[[pa.RecordBatch], pa.Array] | None = None
    """The revision of the state of each row, if it is not the one that the row names."""
    left_out: set[str] = field(default_factory=set)
    """Wrong rows of states that were left out, since they can only allow."""
    _open: RecentlyUsed[Any, Decider] = field(default_factory=partial(RecentlyUsed, MOST_OPEN))
    _policies: dict[str | None, Policy] = field(default_factory=dict)

    def then(self, policy: str | None, state: str | None) -> Decider | None:
        """Return the policy and the state that decided at a moment; None if they are not asked for. Raises Unknown."""
        if self.policy is None or self.state is None:
            return None
        by = self.policy_at(policy)
        return self._decider(("then", policy, state), by, by, self.state, state)

    def now(self, policy: str | None, state: str | None) -> Decider:
        """The new policy, with the new state or a moment's state. Raises Unknown."""
        fixed = self.new_state
        if fixed is not None:
            return self._decider(("new",), self.new, None, lambda _: fixed, None)
        if self.state is None:
            raise UsageError("there is no state to decide by: give one")
        packed_for = None if self.policy is None else self.policy_at(policy)
        return self._decider(("now", policy, state), self.new, packed_for, self.state, state)

    def policy_at(self, revision: str | None) -> Policy:
        """The policy of a revision. Raises Unknown."""
        assert self.policy is not None
        if revision not in self._policies:
            self._policies[revision] = self.policy(revision)
        return self._policies[revision]

    @property
    def last_policy(self) -> Policy | None:
        """The policy of the moment that was looked at last."""
        return next(reversed(self._policies.values()), None)

    def closed(self) -> Moments:
        """The same with nothing open, to be sent to another process."""
        return replace(self, _open=RecentlyUsed(MOST_OPEN), left_out=set())

    def state_labels(self, rows: pa.RecordBatch) -> pa.Array:
        """The revision of the state of each row."""
        return rows["state_revision"] if self.label is None else self.label(rows)

    def _decider(
        self, key: Any, policy: Policy, packed_for: Policy | None, state: StateAt, revision: str | None
    ) -> Decider:
        found = self._open.get(key)
        if found is None:
            found = Decider.of(*policy, *self._document(policy, packed_for, state(revision)))
            self._open.put(key, found)
        return found

    def _document(
        self, policy: Policy, packed_for: Policy | None, state: KnownState
    ) -> tuple[Mapping[str, Any], frozenset[str]]:
        """The index of a state as a policy reads it: rows that the policy does not know are left out if they can only allow.

        Besides, the root entities whose shards are missing. `packed_for`: the policy that read the state's bundle at its moment.
        """
        rows, missing = state.rows, frozenset[str]()
        if rows is None:
            try:
                document, missing = combined_document(state.documents)
            except (PolicyError, UsageError) as error:
                raise Unknown(str(error)) from error
            if packed_for is not None and (missing_parts := _not_packed(policy, packed_for)):
                raise Unknown(
                    f"the bundle of the state lacks what the new policy reads and the one of its moment did not ({missing_parts}): give a state"
                )
            if packed_for is not None and _same_index(policy, packed_for):
                return document, missing
            from privtab.bundle import state_of_index

            rows = from_tables(as_written(policy.program, state_of_index(document)), "the state")
        checked, findings = validate(policy.program, rows)
        errors = [finding for finding in findings if finding.severity == "error"]
        if stopping := [finding for finding in errors if finding.stops(policy.program)]:
            raise Unknown(f"a row of the state may carry a denial, and is wrong in the policy: {stopping[0]}")
        self.left_out.update(map(str, errors))
        return index_document(policy.program, checked), missing


def registered(registry: Registry, system: str) -> tuple[PolicyAt, StateAt]:
    """The revisions that a registry keeps of a system."""
    kept: dict[str, Mapping[str, Any]] = {}

    def read_once(what: str, read: Callable[[], Iterable[tuple[str, Any]]]) -> Mapping[str, Any]:
        if what not in kept:
            try:
                kept[what] = dict(read())
            except PrivtabError as error:
                raise Unknown(str(error)) from error
        return kept[what]

    def shards() -> Mapping[str, Revision]:
        return read_once("shards", lambda: ((found.id, found) for found in registry.revisions(system, "shard")))

    def bundle(kind: str, identity: str | None) -> bytes:
        if identity is None:
            raise Unknown(f"the log does not say which revision of the {kind} decided")
        try:
            found = registry.read(kept.get("shards", {}).get(identity) or registry.revision(system, kind, identity))
            registry.check_signature(found)
        except PrivtabError as error:
            raise Unknown(str(error)) from error
        return found

    def parts(revision: str) -> list[str]:
        """Return the bundles of a state in shards; other bundles of a decision point, such as another system's, are left out."""
        named = revision.split(PARTS)
        found = [identity for identity in named if identity in shards()]
        return found or (read_once("releases", released).get(revision, named) if shards() else named)

    def released() -> Iterator[tuple[str, list[str]]]:
        """The bundles of each release, and of its canary, by the revision of the state that they are together, which `privtab serve` logs."""
        for channel in registry.channels():
            for release in registry.history(channel.channel, system) if channel.system == system else ():
                for canary in (False, True):
                    runs = {shard: identity for (_, shard), identity in release.runs(canary=canary).items() if shard}
                    if (people := runs.pop(PartText.PEOPLE, None)) is not None:
                        yield sharded_revision(people, runs), [people, *runs.values()]

    def policy(revision: str | None) -> Policy:
        packed = bundle("policy", revision)
        try:
            return Policy(*program_in(packed, f"policy {revision}"))
        except (FileError, PolicyError) as error:
            raise Unknown(f"policy {revision} cannot be read: {error}") from error

    def state(revision: str | None) -> KnownState:
        identities = [revision] if revision is None else parts(revision)
        try:
            bundles = [ReadBundle.unpacked(identity or "", bundle("state", identity)) for identity in identities]
            return KnownState(documents=tuple(found.content.states[system] for found in bundles))
        except (BrokenBundle, KeyError) as error:
            raise Unknown(f"state {revision} cannot be read: {error}") from error

    return policy, state


def stored(journal: Journal) -> tuple[StateAt, Callable[[pa.RecordBatch], pa.Array]]:
    """The state of a store at the time of each decision, and the number of the last change before it."""
    changes = [(parse_moment(at), number) for number, at, _, _ in journal.requests()]
    times = np.array([at for at, _ in changes], np.int64)
    numbers = [number for _, number in changes]

    def label(rows: pa.RecordBatch) -> pa.Array:
        made = rows["time"].cast(pa.int64()).fill_null(0).to_numpy() * 1000
        before = np.searchsorted(times, made, side="right") - 1
        found = pa.array([str(numbers[at]) if at >= 0 else None for at in before.tolist()], pa.string())
        # A change that the store itself decided was decided by what it held before.
        own = pc.equal(rows["origin"], "store").fill_null(fill_value=False)
        return pc.if_else(own, rows["state_revision"], found)

    def state(number: str | None) -> KnownState:
        if number is None:
            raise Unknown("the store had no state at the time of the decision")
        return KnownState(rows=from_tables(journal.rows(number=int(number)), f"change {number}"))

    return state, label


_USED = ("member_types", "group_membership", "holds", "service_admins")
"""Parts of a state that are in its index only if a row of the policy reads them."""


def _not_packed(policy: Policy, packed_for: Policy) -> str:
    """Return the parts of a state that a policy reads and an index for another policy does not have."""
    read, packed = policy.reads, packed_for.reads
    return ", ".join(part for part in _USED if not getattr(read, part) <= getattr(packed, part))


def _same_index(one: Policy, other: Policy) -> bool:
    """Return whether two policies read the same index: they declare the same, their rows read the same parts, and none asks what is below."""
    if one.reads != other.reads:
        return False
    below = Feature.BELOW.used_by(one.program) or Feature.BELOW.used_by(other.program)
    names = (one.json.keys() | other.json.keys()) - {"revision", "version", "title", "name", "state"}
    return all(one.json.get(name) == other.json.get(name) for name in names if below or name != "rules")
