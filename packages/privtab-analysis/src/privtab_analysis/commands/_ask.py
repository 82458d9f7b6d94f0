"""Shared by the commands that query a policy and a state: arguments, and the display of rules and rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import (
    NOT_SET,
    Entity,
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
from privtab_analysis.attribute_options import attribute_values

if TYPE_CHECKING:
    from privtab.ir import Program


WithOption = Annotated[list[str] | None, option("--with NAME=TYPE:PATH", "A second object of the request.")]
FlagOption = Annotated[list[str] | None, option("--flag NAME[=false]", "A flag to set, or NAME=false to unset it.")]
AttributeOption = Annotated[
    list[str] | None, option("--attribute KIND.NAME=VALUE", "An attribute: user.department=hr, entity.class=public.")
]
GroupOption = Annotated[list[str] | None, option("--group", "A group that the request says the user belongs to.")]
ActiveRoleOption = Annotated[list[str] | None, option("--active-role NAME", "Count only this role; may be repeated.")]
TableFormat = Literal["text", "json", "csv"]
"""Output format of lists: for people, programs or spreadsheets."""
TableFormatOption = Annotated[TableFormat, option("--format", "Output format: for people, programs or spreadsheets.")]
AuthoriseOption = Annotated[
    list[str] | None,
    option("--authorise TABLE[.add|.remove]=OPERATION", "Operation that authorises rows of a store; repeatable."),
]
NoActiveRolesOption = Annotated[bool, option("--no-active-roles", "Count none of the user's roles.")]


def limit_option(noun: str, most: int) -> Any:
    """The option for the number of lines; `most`: how many are shown to people by default."""
    return option("--limit N", f"Number of {noun}; 0 for all. (default: {most} for people)", min=0)


def shown_number(limit: int | None, format_: str, most: int) -> int:
    """The number of entries to show; 0 for all."""
    return limit if limit is not None else most if format_ == "text" else 0


StepsOption = Annotated[int | None, option("--max-steps N", "Ignore longer paths.", min=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerOptions:
    """The user's part of a request, and the flags."""

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
    """The parts of a request beside user, operation and entity; `with_options` makes options of them."""

    with_: WithOption = None
    attribute: AttributeOption = None

    def request(self, program: Program, user: str, action: str, resource: str) -> Request:
        """The request of a user for an operation on an entity. Raises UsageError."""
        from privtab.ir import vocabulary

        return Request(
            user=user_name(user),
            action=action,
            resource=entity(resource),
            groups=self.groups(),
            with_=objects(self.with_),
            flags=flag_names(self.flag, program),
            active_roles=self.active_roles(program),
            attributes=attribute_values(self.attribute, vocabulary(program)),
        )


def entity(text: str) -> Entity:
    """Parse an entity from the command line; raises UsageError."""
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def objects(options: Iterable[str] | None) -> dict[str, Entity]:
    """Parse `--with NAME=TYPE:PATH` options; raises UsageError."""
    pairs = parse_key_values(options, "--with", "NAME=TYPE:PATH", example="template=job_template:m/nightly")
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
        err().print_styled(("note: ", "bold"), note)


def flag_names(options: Iterable[str] | None, program: Program) -> frozenset[str]:
    """Check `--flag` options; raises UsageError for one that no row reads, since it would be ignored."""
    from privtab.ir import rule_flags

    if not options:
        return frozenset()
    rules = program.rules.values()
    known = sorted({flag for rule in rules for flag in (*rule_flags(program, rule), *rule.required_flags)})
    for flag in (flag.removesuffix(NOT_SET).removesuffix("=true") for flag in options):
        if flag not in known:
            raise UsageError(f"no row uses a flag `{flag}`" + (hint(flag, known) if known else "; there are none"))
    return frozenset(flag.removesuffix("=true") for flag in options)


def check_required_flags(flags: frozenset[str], program: Program) -> None:
    """Raise UsageError if a flag that an operation requires is not given."""
    for rule in program.rules.values():
        for flag in sorted({*rule.required_flags}.difference(flag.removesuffix(NOT_SET) for flag in flags)):
            raise UsageError(f"`{rule.id}` needs the flag `{flag}`: add `--flag {flag}` or `--flag {flag}{NOT_SET}`")
