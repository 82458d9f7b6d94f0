"""Shared by the commands that query a policy and a state: arguments, and the display of rules and rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from privtab.base import (
    NOT_SET,
    Entity,
    GivenAttributes,
    InvalidRequest,
    Request,
    UsageError,
    bare_name,
    check_principal,
    dataclass,
    hint,
    is_wildcard,
    parse_key_values,
)
from privtab.command import err, option
from privtab_analysis.given_options import attribute_values, parts_given

if TYPE_CHECKING:
    from privtab.ir import Program


NO_ROLES = "no-roles"
"""The word for a caller who acts in none of their roles."""
OBJECT = "template=job_template:m/nightly"


WithOption = Annotated[
    list[str] | None,
    option(
        "--with NAME[=VALUE]",
        "What the request carries: a flag (NAME, NAME=false), an object (NAME=TYPE:PATH), an attribute (user.NAME=VALUE).",
    ),
]
CallerOption = Annotated[
    list[str] | None,
    option("--caller group:NAME", "A group of the caller; role:NAME, an active role, or no-roles; repeatable."),
]
TableFormat = Literal["text", "json", "csv"]
"""Output format of lists: for people, programs or spreadsheets."""
TableFormatOption = Annotated[TableFormat, option("--format", "Output format: for people, programs or spreadsheets.")]
AuthoriseOption = Annotated[
    list[str] | None,
    option("--authorise TABLE[.add|.remove]=OPERATION", "Operation that authorises rows of a store; repeatable."),
]


def limit_option(noun: str, most: int) -> Any:
    """The option for the number of lines; `most`: how many are shown to people by default."""
    return option("--limit N", f"Number of {noun}; 0 for all. (default: {most} for people)", min=0)


def shown_number(limit: int | None, format_: str, most: int) -> int:
    """The number of entries to show; 0 for all."""
    return limit if limit is not None else most if format_ == "text" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions:
    """Options for what a user could gain in several steps."""

    steps: Annotated[
        str | None, option("--steps N", "Instead, what they could gain by operations in N steps; `any`: in any number.")
    ] = None
    gain: Annotated[
        str | None,
        option(
            "--gain WHAT", "How they could gain this on ENTITY: a privilege, a set, owner, member, or 'can OPERATION'."
        ),
    ] = None
    everyone: Annotated[
        bool,
        option("--all", "What any user of the state, or an unknown user, could gain; exits with 1 if there is any."),
    ] = False
    authorise: AuthoriseOption = None

    def most_steps(self) -> int | None:
        """The most steps; None for any number. Raises UsageError."""
        if self.steps in (None, "any"):
            return None
        if not (self.steps.isdecimal() and self.steps.isascii() and int(self.steps)):
            raise UsageError(f"`--steps {self.steps}`: write a number from 1, or any")
        return int(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The parts of a request beside user, operation and entity; `with_options` makes options of them."""

    with_: WithOption = None
    caller: CallerOption = None

    def groups(self) -> tuple[str, ...]:
        """The names of the groups. Raises UsageError."""
        return self._named("group")

    def _named(self, wanted: str) -> tuple[str, ...]:
        """The groups or roles among the words about the caller. Raises UsageError for a word of no form."""
        found = []
        for text in self.caller or ():
            kind, _, name = text.partition(":")
            if text != NO_ROLES and (kind not in ("group", "role") or not name):
                raise UsageError(f"`--caller {text}`: write group:NAME, role:NAME or {NO_ROLES}")
            if kind == wanted:
                found.append(name)
        return tuple(dict.fromkeys(found))

    def general(self, program: Program, *, objects: bool = False) -> Given:
        """What every request carries of a question about many: flags, and perhaps objects. Raises UsageError, also for a required flag."""
        _, others, attributes = parts_given(self.with_)
        if left := [*attributes, *([] if objects else others)]:
            raise UsageError(f"`--with {left[0]}`: a question about many operations takes flags alone")
        found = given(self.with_, program)
        check_required_flags(found.flags, program)
        return found

    def active_roles(self, program: Program) -> tuple[str, ...] | None:
        """The active roles; None if all are. Raises UsageError."""
        names, without = self._named("role"), NO_ROLES in (self.caller or ())
        if not names and not without:
            return None
        if names and without:
            raise UsageError(f"`--caller role:{names[0]}` and `--caller {NO_ROLES}` exclude each other")
        if program.semantics.active_roles != "request":
            raise UsageError(
                f"requests to `{program.system}` cannot name active roles: its policy needs `semantics: {{active_roles: request}}`"
            )
        return names

    def request(self, program: Program, user: str, action: str, resource: str) -> Request:
        """The request of a user for an operation on an entity. Raises UsageError."""
        found = given(self.with_, program)
        return Request(
            user=user_name(user),
            action=action,
            resource=entity(resource),
            groups=self.groups(),
            with_=found.objects,
            flags=found.flags,
            active_roles=self.active_roles(program),
            attributes=found.attributes,
        )


class Given(NamedTuple):
    """What a request carries."""

    flags: frozenset[str]
    objects: dict[str, Entity]
    attributes: GivenAttributes


def given(options: Iterable[str] | None, program: Program) -> Given:
    """Parse `--with` options; raises UsageError for a name that the policy does not have, since it would be ignored."""
    from privtab.ir import vocabulary

    flags, objects, attributes = parts_given(options)
    known, named = _objects(program), parse_key_values(objects, "--with", "NAME=TYPE:PATH", example=OBJECT)
    if unknown := sorted(named.keys() - known):
        a_flag = f": a flag is written {unknown[0]} or {unknown[0]}{NOT_SET}" if unknown[0] in _flags(program) else ""
        there = f"; there are: {', '.join(sorted(known))}" if known else "; there are none"
        raise UsageError(f"no operation takes an object `{unknown[0]}`{a_flag or hint(unknown[0], known) or there}")
    return Given(
        flag_names(flags, program),
        {name: entity(text) for name, text in named.items()},
        attribute_values(attributes, vocabulary(program)),
    )


def entity(text: str) -> Entity:
    """Parse an entity from the command line; raises UsageError."""
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


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
        err().print_styled(("note: ", "bold"), note)


def _objects(program: Program) -> set[str]:
    """The names of the objects that rows of a policy look at."""
    return {with_.name for rule in program.rules.values() for with_ in rule.withs}


def _flags(program: Program) -> list[str]:
    """The flags that rows of a policy use."""
    from privtab.ir import rule_flags

    rules = program.rules.values()
    return sorted({flag for rule in rules for flag in (*rule_flags(program, rule), *rule.required_flags)})


def flag_names(options: Iterable[str], program: Program) -> frozenset[str]:
    """Check the flags among `--with` options; raises UsageError for one that no row reads, or that is given twice."""
    found = [flag.removesuffix("=true") for flag in options]
    names = [flag.removesuffix(NOT_SET) for flag in found]
    known = _flags(program) if names else ()
    for flag in names:
        if flag not in known:
            an_object = f": an object is written {flag}=TYPE:PATH" if flag in _objects(program) else ""
            there = hint(flag, known) if known else "; there are none"
            raise UsageError(f"no row uses a flag `{flag}`{an_object or there}")
        if names.count(flag) > 1:
            raise UsageError(f"`--with` is given twice for `{flag}`")
    return frozenset(found)


def check_required_flags(flags: frozenset[str], program: Program) -> None:
    """Raise UsageError if a flag that an operation requires is not given."""
    for rule in program.rules.values():
        for flag in sorted({*rule.required_flags}.difference(flag.removesuffix(NOT_SET) for flag in flags)):
            raise UsageError(f"`{rule.id}` needs the flag `{flag}`: add `--with {flag}` or `--with {flag}{NOT_SET}`")
