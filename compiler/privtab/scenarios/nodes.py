"""What scenario files say, ready to be asked: states, requests, and what their answers must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from privtab.diagnostics import Located, Span
from privtab.ir.nodes import Program, Rule
from privtab.request import Request
from privtab.state.nodes import State

Kind: TypeAlias = Literal["case", "item", "need", "cell", "step"]
"""Where a case comes from: `cases`, `visible`, `needs`, `suites`, `walkthroughs`."""
Text: TypeAlias = Located[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """A part of a frozen reason: the atom, and where they are said the principal and the entity of its grant."""

    atom: str
    through: str | None = None
    on: str | None = None

    def __str__(self) -> str:
        through = f" through {self.through}" if self.through else ""
        return self.atom + through + (f" at {self.on}" if self.on else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an answer must be; what is None may be anything."""

    allowed: bool
    effects: tuple[str, ...] | None = None
    missing: frozenset[frozenset[str]] | None = None
    reason: tuple[Because, ...] | None = None
    rule: str | None = None
    report: str | None = None
    """What the row says of items that do not pass; no decision says it, so it is looked up in the policy."""

    @property
    def explained(self) -> bool:
        """Whether more than the decision and its effects is frozen."""
        return any(part is not None for part in (self.missing, self.reason, self.rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request and its answer."""

    name: str
    kind: Kind
    world: int
    """The position of its state in the plan."""
    request: Request
    expected: Expected
    span: Span
    """The entry of the file that it was made from; many cases can share it."""
    holds: str | None = None
    """What the caller was given, where the case made them up."""
    why: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that a filter looks at."""
        request = self.request
        asked = f"{request.action} {request.resource}"
        return (self.name, f"{request.user} {asked}", asked, request.resource.type, *self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What scenario files are about: a policy with its variant and readings."""

    policy: Path
    variant: str | None = None
    readings: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """The policy's file, and in brackets what was chosen of it."""
        return self.policy.as_posix() + self.chosen

    @property
    def chosen(self) -> str:
        """The variant and the readings in brackets; nothing where there are none."""
        chosen = [self.variant] if self.variant else []
        chosen += [f"{row}={name}" for row, name in self.readings]
        return f" ({', '.join(chosen)})" if chosen else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All cases about one subject, over their states."""

    subject: Subject
    program: Program
    files: tuple[str, ...] = ()
    worlds: tuple[State, ...] = ()
    cases: tuple[Case, ...] = ()
    rules: Mapping[tuple[str, str], Rule] = field(default_factory=dict)
    """The rules that the cases are to cover: of a variant those that it changes."""
