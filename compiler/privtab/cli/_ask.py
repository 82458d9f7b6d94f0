"""Shared by the commands that query a policy and a state: arguments, and the display of rules and rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from privtab.cli._output import err, styled
from privtab.cli._parameters import option
from privtab.errors import InvalidRequest, UsageError
from privtab.hints import hint
from privtab.key_values import attribute_values, key_values
from privtab.moments import WINDOW, edge_texts
from privtab.names import bare_name, check_principal, is_wildcard
from privtab.request import NOT_SET, Entity, Request, flag_name

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.analysis.provenance import Chain, ProvenanceStep
    from privtab.diagnostics import Span
    from privtab.ir.nodes import Program, Rule

MOST_LINES = 8
"""Maximum lines shown of a row's source."""
NARROWEST = 60
"""Minimum width before the column of positions."""


WIDEST = 120
"""Column at which lists are wrapped, even on wider terminals."""


WithOption = Annotated[list[str] | None, option("--with NAME=TYPE:PATH", "A second object of the request.")]
FlagOption = Annotated[list[str] | None, option("--flag NAME[=false]", "A flag to set, or NAME=false to unset it.")]
AttributeOption = Annotated[
    list[str] | None, option("--attribute KIND.NAME=VALUE", "An attribute: user.department=hr, entity.class=public.")
]
GroupOption = Annotated[list[str] | None, option("--group", "A group that the request says the user belongs to.")]
ActiveRoleOption = Annotated[list[str] | None, option("--active-role NAME", "Count only this role; may be repeated.")]
NoActiveRolesOption = Annotated[bool, option("--no-active-roles", "Count none of the user's roles.")]


def limit_option(noun: str, most: int) -> Any:
    """The option for the number of lines; `most`: how many are shown to people by default."""
    return option("--limit N", f"Number of {noun}; 0 for all. (default: {most} for people)", min=0)


def shown_number(limit: int | None, format_: str, most: int) -> int:
    """How many things are shown; 0 for all."""
    return limit if limit is not None else most if format_ == "text" else 0


StepsOption = Annotated[int | None, option("--max-steps N", "Ignore longer paths.", min=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerOptions:
    """What a request says of its user, and its flags."""

    flag: FlagOption = None
    group: GroupOption = None
    active_role: ActiveRoleOption = None
    no_active_roles: NoActiveRolesOption = False

    def groups(self) -> tuple[str, ...]:
        """The names of the groups, written bare or as `group:name`; raises UsageError for one without a name."""
        names = tuple(name.removeprefix("group:") for name in self.group or ())
        if "" in names:
            raise UsageError("`--group` is empty: it names no group")
        return names

    def flags(self, program: Program) -> frozenset[str]:
        """The flags, each of which an operation requires that requires any. Raises UsageError."""
        flags = flag_names(self.flag, program)
        check_required_flags(flags, program)
        return flags

    def active_roles(self, program: Program) -> tuple[str, ...] | None:
        """The active roles; None if all are. Raises UsageError."""
        names = tuple(dict.fromkeys(name.removeprefix("role:") for name in self.active_role or ()))
        if not names and not self.no_active_roles:
            return None
        if names and self.no_active_roles:
            raise UsageError("`--active-role` and `--no-active-roles` exclude each other")
        if "" in names:
            raise UsageError("`--active-role` is empty: it names no role")
        if program.semantics.active_roles != "request":
            raise UsageError(
                f"requests to `{program.system}` cannot name active roles: its policy needs `semantics: {{active_roles: request}}`"
            )
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions(CallerOptions):
    """What a request gives beside its user, operation and entity; `with_options` makes options of it."""

    with_: WithOption = None
    attribute: AttributeOption = None

    def request(self, program: Program, user: str, action: str, resource: str) -> Request:
        """The request of a user for an operation on an entity. Raises UsageError."""
        return Request(
            user=user_name(user),
            action=action,
            resource=entity(resource),
            groups=self.groups(),
            with_=objects(self.with_),
            flags=flag_names(self.flag, program),
            active_roles=self.active_roles(program),
            attributes=attribute_values(self.attribute, program.attributes),
        )


def entity(text: str) -> Entity:
    """Parse an entity from the command line; raises UsageError."""
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def objects(options: Iterable[str] | None) -> dict[str, Entity]:
    """Parse `--with NAME=TYPE:PATH` options; raises UsageError."""
    pairs = key_values(options, "--with", "NAME=TYPE:PATH", example="template=job_template:m/nightly")
    return {name: entity(text) for name, text in pairs.items()}


def user_name(text: str) -> str:
    """Parse a user, bare or as `user:name`; raises UsageError if it is empty or not a user."""
    if not text or text == "user:":
        raise UsageError("USER must not be empty")
    name = bare_name(text, "user")
    try:
        check_principal(name)
    except InvalidRequest as error:
        suggestion = f"; `what-can {text}` tells what it gives" if text.startswith(("group:", "role:")) else ""
        raise UsageError(f"{error}{suggestion}") from None
    return name


def principal_name(text: str) -> str:
    """Parse a user, bare or as `user:name`, a group as `group:name` or a role as `role:name`; raises UsageError."""
    kind, _, name = text.partition(":")
    if kind not in ("group", "role"):
        return user_name(text)
    if not name or is_wildcard(name):
        raise UsageError(f"`{text}` names no {kind}: write {kind}:NAME")
    return text


def show_notes(notes: Iterable[str]) -> None:
    """Print notes about the limits of an answer to standard error."""
    for note in notes:
        err().print(styled(("note: ", "bold"), note))


def flag_names(options: Iterable[str] | None, program: Program) -> frozenset[str]:
    """Check `--flag` options; raises UsageError for one that no row reads, since it would be ignored."""
    from privtab.ir.shapes import rule_flags

    if not options:
        return frozenset()
    rules = program.rules.values()
    known = sorted({flag for rule in rules for flag in (*rule_flags(program, rule), *rule.required_flags)})
    for flag in (flag_name(flag).removesuffix("=true") for flag in options):
        if flag not in known:
            raise UsageError(f"no row uses a flag `{flag}`" + (hint(flag, known) if known else "; there are none"))
    return frozenset(flag.removesuffix("=true") for flag in options)


def check_required_flags(flags: frozenset[str], program: Program) -> None:
    """Raise UsageError if a flag that an operation requires is not given."""
    for rule in program.rules.values():
        for flag in sorted({*rule.required_flags}.difference(map(flag_name, flags))):
            raise UsageError(f"`{rule.id}` needs the flag `{flag}`: add `--flag {flag}` or `--flag {flag}{NOT_SET}`")


def besides(request: Request) -> str:
    """What a request gives beside its user, operation and entity, as text."""
    words = [f" {name}={object_}" for name, object_ in sorted(request.with_.items())]
    flags = [f" +{flag}" for flag in sorted(request.flags)]
    active = [] if request.active_roles is None else [f" as {', '.join(request.active_roles) or 'no role'}"]
    return "".join([*words, *flags, *active])


def show_rule(console: Console, program: Program, rule: Rule) -> None:
    """Print a rule with its source text, its position, and the document it comes from."""
    console.print()
    console.print(styled(("rule  ", "dim"), rule.id, (f"  {rule.span.path}:{rule.span.line}", "dim")))
    for line in _source(rule.span):
        console.print(f"      {line}")
    if rule.source is not None:
        line = "" if rule.source.line is None else f" line {rule.source.line}"
        source_name = next(
            (name for name, document in program.sources.items() if document == rule.source.document), None
        )
        suffix = "" if source_name is None else f" ({source_name})"
        console.print(styled(("from  ", "dim"), f"{rule.source.document}{line}{suffix}"))


def show_words(
    console: Console, head: str, words: Iterable[str], *, margin: int, gap: str = " ", style: str = ""
) -> None:
    """Print words after a head, wrapped in the column of the first one: `margin`, or further right after a long head."""
    console.print(head, style=style, end="")
    column = max(margin, len(head))
    for number, word in enumerate(words):
        if number and column + len(gap) + len(word) > min(console.width, WIDEST):
            console.print()
            console.print(" " * margin, end="")
            column = margin
        elif number:
            console.print(gap, end="")
            column += len(gap)
        console.print(word, style="dim" if word.startswith("[") else "", end="")
        column += len(word)
    console.print()


def show_rows(console: Console, rows: Iterable[tuple[str, str]], *, indent: int = 6) -> None:
    """Print lines of text, each with a position: in one column if the width allows, else at the right edge."""
    row_list = list(rows)
    position_column = max([NARROWEST, *(indent + len(text) for text, place in row_list if place)]) + 2
    fits_one_column = all(position_column + len(place) <= console.width for _, place in row_list)
    for text, place in row_list:
        console.print(" " * indent + text, end="")
        if fits_one_column and place:
            console.print(" " * (position_column - indent - len(text)) + place, style="dim")
        else:
            show_place(console, place, at=indent + len(text), column=console.width)


def show_place(console: Console, place: str, *, at: int, column: int = 0) -> None:
    """End a line, printed up to column `at`, with a position; on a line of its own if it does not fit.

    `column`: where the position ends; 0 for right after the line.
    """
    if place and at + 2 + len(place) > console.width:
        console.print()
        at = 0
        column = console.width
    gap = max(2 if at else 0, column - len(place) - at)
    console.print(" " * gap + place if place else "", style="dim")


def chain_rows(chain: Chain) -> list[tuple[str, str]]:
    """The rows of a chain with their positions."""
    from privtab.state.names import place_text

    return [(step.text, place_text(step.place)) for step in chain]


def step_json(step: ProvenanceStep) -> dict[str, Any]:
    """A link of a chain as JSON; `from` and `until` only if its row has them."""
    place = step.place
    where = None
    if place is not None:
        where = {"path": place.path, "table": place.table, "row": place.row, "line": place.line}
    edges = zip(WINDOW, edge_texts(step.window), strict=True)
    window = {name: edge for name, edge in edges if edge is not None}
    return {"kind": step.kind, "text": step.text, "place": where, **window}


def rule_json(rule: Rule) -> dict[str, Any]:
    """The id and position of a rule as JSON."""
    return {"id": rule.id, "path": rule.span.path, "line": rule.span.line}


def _source(span: Span) -> list[str]:
    """The source of a row: the line of its key and the lines indented below; empty if the file is missing."""
    try:
        lines = Path(span.path).read_text(encoding="utf-8").split("\n")[span.line - 1 :]
    except OSError:
        return []
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    continuation = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:MOST_LINES])
    return [line[indent:].rstrip() for line in [*lines[:1], *continuation]]
