"""The world of the pages: a policy and a state, the values derived from them once, and the queries of URLs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from privtab.base import Entity, Request, UsageError, hint
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Places, State
from privtab_analysis.entitlements.holders import UserHolders
from privtab_analysis.entitlements.universe import Universe, named, universe
from privtab_analysis.state_diff import Comparison
from privtab_analysis.state_diff.subjects import Side
from privtab_pages.policy import PolicyPage, Row
from privtab_pages.roles import default_roles

if TYPE_CHECKING:
    from privtab.engines import OpenEngine

LONGEST = 12_000
"""Maximum length of one value in a URL."""
MOST_VALUES = 50
"""Maximum number of values in a URL."""
MOST_NAMES = 200
"""Maximum names that a list offers."""


LONGEST_TEXT = 400_000
"""Maximum characters of the two texts that are edited."""


_LOOKED_UP = (
    *(("grants", "entity"), ("grants", "grantee"), ("owners", "entity"), ("owners", "owner"), ("members", "user")),
    *(("memberships", "user"), ("memberships", "group"), ("assignments", "principal"), ("assignments", "role")),
)
"""The columns of which rows are looked up by text."""


class Query:
    """The query of a URL: its parameters, of which empty ones count as left out."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = [(name, value) for name, value in pairs if value.strip()]
        if len(self.pairs) > MOST_VALUES:
            raise UsageError(f"a question has {MOST_VALUES} values at most")
        if any(len(value) > LONGEST for _, value in self.pairs):
            raise UsageError(f"a value of a question has {LONGEST:,} characters at most")

    def one(self, name: str) -> str:
        """The first value of a parameter; empty without one."""
        return next((value for key, value in self.pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        """Every value of a parameter."""
        return [value for key, value in self.pairs if key == name]

    def number(self, name: str) -> int:
        """A number from 0 on; 0 for anything else."""
        text = self.one(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0

    def link(self, path: str, **changed: str | int | None) -> str:
        """The same question with other values; None leaves a parameter out."""
        kept = [(name, value) for name, value in self.pairs if name not in changed]
        return linked(path, [*kept, *((name, str(v)) for name, v in changed.items() if v not in (None, ""))])


def linked(path: str, pairs: Iterable[tuple[str, str]]) -> str:
    """A URL."""
    query = urlencode(list(pairs), errors="replace")
    return f"{path}?{query}" if query else path


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A policy and, if there is one, a state of one moment."""

    program: Program
    shown: str
    """The name of the policy."""
    revision: str = ""
    state: State | None = None
    places: Places = Places.NONE
    state_shown: str = ""
    moment: int = 0
    moment_shown: str = ""
    partial: bool = False
    """True if wrong rows of the state were left out."""
    request: Callable[..., Request]
    """The request of (user, operation, entity) and of lists of options, as commands read them."""
    caller: Callable[[str, list[str]], tuple[str, frozenset[str]]]
    """The principal and the flags of a question about all operations, as commands read them."""
    engine: Callable[[], OpenEngine] | None = None
    """Opens the engine in process on the state."""
    variants: tuple[str, ...] = ()
    chosen: Callable[[str | None, Mapping[str, str]], Program] | None = None
    """The same policy with a variant and readings; None for one that is compiled already."""
    versions: Mapping[str, Callable[[], Program]] = field(default_factory=dict)
    """Other policies to compare with, by name."""
    states: Mapping[str, tuple[State, Places]] = field(default_factory=dict)
    """Other states to compare with, by name."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The texts of the policy and the state, where they are YAML files."""

    @property
    def rows(self) -> State:
        """The state. Raises UsageError without one."""
        if self.state is None:
            raise UsageError("this needs a state: start `privtab explore` with `--state STATE`")
        return self.state

    @cached_property
    def reference(self) -> Reference:
        """The reference evaluator."""
        return Reference(self.program, self.rows)

    @cached_property
    def universe(self) -> Universe:
        """Every entity of the state."""
        return universe(self.program, self.rows)

    @cached_property
    def holders(self) -> UserHolders:
        """The users behind each principal."""
        return UserHolders(self.program, self.rows, self.reference.holdings)

    @cached_property
    def users(self) -> list[str]:
        """Every user whom the state names."""
        return sorted(self.holders.known)

    @cached_property
    def principals(self) -> Mapping[str, list[str]]:
        """The groups and the roles that the state names, by kind."""
        return {kind: sorted(named(self.program, self.rows, kind)) for kind in ("group", "role")}

    @cached_property
    def comparison(self) -> Comparison:
        """The state beside itself, with its entities by path."""
        side = Side(self.program, self.rows)
        return Comparison(self.program, (side, side), (), 0, causes=False)

    @cached_property
    def open_engine(self) -> OpenEngine:
        """The engine in process. Raises UsageError without a state."""
        if self.engine is None:
            raise UsageError("this needs a state: start `privtab explore` with `--state STATE`")
        return self.engine()

    @cached_property
    def page(self) -> PolicyPage:
        """The policy as a page."""
        return PolicyPage(program=self.program, revision=self.revision, roles=[default_roles(self.program)])

    @cached_property
    def table(self) -> Mapping[str, Row]:
        """The rows of that page by anchor."""
        return {row.anchor: row for rows in self.page.view()["sections"].values() for row in rows}

    @cached_property
    def readings(self) -> Mapping[str, tuple[str, ...]]:
        """The other readings of each ambiguous row, by `entity/operation`."""
        rules = (rule for rule in self.program.rules.values() if rule.ambiguous is not None)
        found = {f"{r.entity}/{r.operation}": tuple(name for name, _ in r.ambiguous.readings) for r in rules}  # type: ignore[union-attr]
        return found if self.chosen is not None else {}

    @cached_property
    def operations(self) -> list[str]:
        """Every operation by name."""
        return sorted({operation for _, operation in self.program.rules})

    def warm(self) -> Iterator[str]:
        """Work out the values that many pages need; yields the name of the next step."""
        yield "the table"
        self.table  # noqa: B018
        if self.state is not None:
            yield "users"
            self.users, self.principals  # noqa: B018
            self.holders.all()
            yield "entities"
            self.comparison.tree, self.comparison.named  # noqa: B018
            for type_ in self.program.entities:
                self.universe.paths(type_)
            yield "look-ups"
            self.open_engine, self.reference  # noqa: B018
            for column in _LOOKED_UP:
                self.rows.column(*column).where([])

    def requested(self, query: Query, *, user: str | None = None) -> Request:
        """The request that a URL describes. Raises UsageError and InvalidRequest, as the commands do."""
        for name, what in (("operation", "an operation"), ("entity", "an entity, as type:path")):
            if not query.one(name):
                raise UsageError(f"give {what}")
        return self.request(
            query.one("user") if user is None else user,
            query.one("operation"),
            query.one("entity"),
            with_=[text for name in ("with", "flag", "attribute") for text in query.all(name)],
            caller=[
                *(f"group:{name.removeprefix('group:')}" for name in query.all("group")),
                *(f"role:{name.removeprefix('role:')}" for name in query.all("active-role")),
                *(["no-roles"] if query.one("no-active-roles") else []),
            ],
        )

    def anybody(self, query: Query) -> Request:
        """The same request without a user. Raises UsageError for a query about one user."""
        if left := [name for name in ("group", "attribute", "active-role", "no-active-roles") if query.one(name)]:
            raise UsageError(f"this is about everybody: leave `{left[0]}` out")
        return replace(self.requested(query, user="anyone"), user="")

    def suggestions(self, kind: str, text: str, most: int = 20) -> list[str]:
        """Names that contain a text: of users, principals, operations or entities."""
        match kind:
            case "operation":
                names: Iterable[str] = self.operations
            case "user":
                names = self.users
            case "principal":
                names = (*self.users, *(f"{of}:{name}" for of, found in self.principals.items() for name in found))
            case _:
                names = self.rows.named_entities()
        found = [name for name in names if text.lower() in name.lower()] if len(text) <= 200 else []
        return sorted(found, key=lambda name: (not name.startswith(text), len(name), name))[:most]


def one_of(name: str, known: Mapping[str, Any], what: str) -> Any:
    """The value of a name. Raises UsageError for an unknown name."""
    if name not in known:
        raise UsageError(f"no {what} `{name}`" + hint(name, known))
    return known[name]


def entity_of(text: str) -> Entity:
    """An entity. Raises UsageError."""
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def request_of(program: Program) -> Callable[..., Request]:
    """Reads the parts of a request as options of commands are read."""

    def request(user: str, operation: str, entity: str, **options: Any) -> Request:
        from privtab_analysis.commands._ask import RequestOptions

        return RequestOptions(**options).request(program, user, operation, entity)

    return request


def caller_of(program: Program) -> Callable[[str, list[str]], tuple[str, frozenset[str]]]:
    """Reads a principal and flags as arguments of commands are read."""

    def caller(user: str, flags: list[str]) -> tuple[str, frozenset[str]]:
        from privtab_analysis.commands._ask import RequestOptions, principal_name

        return principal_name(user), RequestOptions(with_=flags).general(program).flags

    return caller
