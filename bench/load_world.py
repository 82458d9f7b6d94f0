"""The world under load: different policies and states, their bundles, requests, and the answers of the reference."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PosixPath
from typing import Any, Literal, TypeAlias

from privtab import Entity, Request
from privtab.bundle.archive import json_bytes, packed_archive
from privtab.bundle.pack import PolicyArtifacts
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

Kind: TypeAlias = Literal["policy", "state"]
KINDS: tuple[Kind, ...] = ("policy", "state")

SYSTEM = "load"
POLICY = """\
privtab: 1
system: load
version: "{version}"
entities: {{lake: {{schema: {{table: }}}}}}
privileges: [USE, READ, WRITE, SHARE]
sets: {{ALL: [READ, WRITE]}}
semantics: {{inheritance: down, deny: overrides, owner: {{creator: true}}}}
tables:
  schema:
    open: {open}
  table:
    read: {read}
    write: {write}
    list: {{each: can read (table)}}
    copy: {{with: {{to: schema}}, requires: can read (table) and WRITE (to)}}
    share: "SHARE (table) and (owner (table) when forever)"
"""
VARIANTS: Sequence[Mapping[str, str]] = (
    {"open": "USE (schema)", "read": "USE (schema) and READ (table) or owner (table)", "write": "WRITE (table)"},
    {"open": "READ/WRITE (schema)", "read": "READ/WRITE (table)", "write": "WRITE (table) and can open (schema)"},
)
"""Two policies with the same operations and different conditions."""
STATES = 8
USERS, GROUPS, ROLES, SCHEMAS, TABLES = 40, 6, 16, 6, 12
GRANTS, ASSIGNMENTS = 160, 60
QUESTIONS, LISTING = 240, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A combination of a policy and a state, by number; bundles with the same content still have different revisions."""

    policy: int
    state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The arguments of a call of `visible`: a user and tables."""

    user: str
    items: tuple[str, ...]


class World:
    """The policies and states, the requests, and the correct answers."""

    def __init__(self, seed: int = 2024) -> None:
        self._chance = random.Random(seed)
        self.programs = tuple(_program(number) for number in range(len(VARIANTS)))
        self._tables = tuple(self._draw_state() for _ in range(STATES))
        self._states = tuple(self._validated(tables) for tables in self._tables)
        self.requests = tuple(self._draw_request() for _ in range(QUESTIONS))
        self.listings = tuple(self._draw_listing() for _ in range(LISTING))
        self._answers: dict[Variant, tuple[bool, ...]] = {}
        self._visible: dict[Variant, tuple[tuple[str, ...], ...]] = {}
        for variant in self.variants:
            reference = Reference(self.programs[variant.policy], self._states[variant.state])
            self._answers[variant] = tuple(reference.decide(request).allowed for request in self.requests)
            self._visible[variant] = tuple(
                tuple(t for t in one.items if reference.decide(_listed(one.user, t)).allowed) for one in self.listings
            )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every policy with every state."""
        return tuple(Variant(policy=p, state=s) for p in range(len(VARIANTS)) for s in range(STATES))

    def allowed(self, variant: Variant, question: int) -> bool:
        """The correct answer to a request."""
        return self._answers[variant][question]

    def visible(self, variant: Variant, listing: int) -> tuple[str, ...]:
        """The correct answer to a listing."""
        return self._visible[variant][listing]

    def variant(self, policy: int, state: int) -> Variant:
        """The contents of the bundles with these numbers."""
        return Variant(policy=policy % len(VARIANTS), state=state % STATES)

    # --- bundles ---

    def bundle(self, kind: Kind, number: int) -> bytes:
        """The bundle with a number, which is part of its revision, so that all bundles differ."""
        return self._policy(number) if kind == "policy" else self._state(number)

    def _policy(self, number: int) -> bytes:
        made = self._artifacts[number % len(VARIANTS)]
        revision = revision_of("policy", number)
        program = {**made.program, "revision": revision}
        return replace(made, revision=revision, program=program, program_bytes=json_bytes(program)).bundle()

    def _state(self, number: int) -> bytes:
        revision = revision_of("state", number)
        document = {**self._indexes[number % STATES], "revision": revision}
        manifest = {"revision": revision, "roots": [f"privtab_state/{SYSTEM}"], "rego_version": 1}
        return packed_archive(
            {".manifest": json_bytes(manifest), f"privtab_state/{SYSTEM}/data.json": json_bytes(document)}
        )

    @cached_property
    def _artifacts(self) -> tuple[PolicyArtifacts, ...]:
        return tuple(policy_artifacts(program) for program in self.programs)

    @cached_property
    def _indexes(self) -> tuple[dict[str, Any], ...]:
        return tuple(index_document(self.programs[0], state) for state in self._states)

    # --- chance ---

    def _validated(self, tables: dict[str, Any]) -> Any:
        state, findings = validate(self.programs[0], from_tables(tables, "load"))
        findings = tuple(finding for finding in findings if finding.severity != "note")
        if findings:
            raise ValueError(f"the state for the load is not clean: {findings[0].message}")
        return state

    def _draw_state(self) -> dict[str, list[dict[str, str]]]:
        chance = self._chance
        roles = [f"role:r{i}" for i in range(ROLES)]
        holders = [f"user:u{i}" for i in range(USERS)] + [f"group:g{i}" for i in range(GROUPS)] * 4
        grants = {
            (
                chance.choice(roles),
                "deny" if chance.random() < 0.08 else "allow",
                chance.choice(("USE", "USE", "READ", "READ", "WRITE", "SHARE", "ALL")),
                self._draw_place(),
            )
            for _ in range(GRANTS)
        }
        owners = {self._draw_table(): f"user:u{chance.randrange(USERS)}" for _ in range(SCHEMAS * TABLES // 2)}
        assigned = {(chance.choice(holders), chance.choice(roles)) for _ in range(ASSIGNMENTS)}
        return {
            "memberships": [
                {"user": f"u{i}", "group": f"g{chance.randrange(GROUPS)}"}
                for i in range(USERS)
                if chance.random() < 0.7
            ],
            "assignments": [{"principal": who, "role": role.removeprefix("role:")} for who, role in sorted(assigned)],
            "grants": [
                {"grantee": role, "effect": effect, "privilege": privilege, "entity": place}
                for role, effect, privilege, place in sorted(grants)
            ],
            "owners": [{"entity": f"table:{path}", "owner": owner} for path, owner in sorted(owners.items())],
        }

    def _draw_table(self) -> str:
        return f"l/s{self._chance.randrange(SCHEMAS)}/t{self._chance.randrange(TABLES)}"

    def _draw_place(self) -> str:
        draw = self._chance.random()
        if draw < 0.04:
            return "lake:l"
        return f"schema:l/s{self._chance.randrange(SCHEMAS)}" if draw < 0.55 else f"table:{self._draw_table()}"

    def _draw_request(self) -> Request:
        chance = self._chance
        user = f"u{chance.randrange(USERS)}"
        table = Entity("table", self._draw_table())
        action = chance.choice(("open", "read", "read", "write", "copy", "share"))
        if action == "open":
            return Request(user=user, action=action, resource=Entity("schema", table.id.rpartition("/")[0]))
        if action == "copy":
            to = Entity("schema", f"l/s{chance.randrange(SCHEMAS)}")
            return Request(user=user, action=action, resource=table, with_={"to": to})
        flags = frozenset({"forever"}) if action == "share" and chance.random() < 0.5 else frozenset[str]()
        return Request(user=user, action=action, resource=table, flags=flags)

    def _draw_listing(self) -> Listing:
        items = dict.fromkeys(self._draw_table() for _ in range(30))
        return Listing(user=f"u{self._chance.randrange(USERS)}", items=tuple(items))


class LateFile(PosixPath):
    """A file that takes `seconds` to read, which can be changed: simulates a slow bundle service."""

    seconds = 0.0

    def read_bytes(self) -> bytes:
        """Like Path.read_bytes, with a delay."""
        time.sleep(self.seconds)
        return super().read_bytes()


def revision_of(kind: Kind, number: int) -> str:
    """The revision of a numbered bundle.

    >>> revision_of("state", 7)
    'state-7'
    """
    return f"{kind}-{number}"


def number_of(revision: str) -> int:
    """The number in a revision.

    >>> number_of("state-7")
    7
    """
    return int(revision.rpartition("-")[2])


def _listed(user: str, table: str) -> Request:
    return Request(user=user, action="list", resource=Entity("table", table))


def _program(number: int) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.yaml"
        path.write_text(POLICY.format(version=number + 1, **VARIANTS[number]), encoding="utf-8")
        return load_program(path)
