"""Contradictions, and conditions that cannot hold: rows, sets and aliases, and impossible properties and contents of types: P201 to P226."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from privtab.base.diagnostics import Located, Span
from privtab.base.hints import did_you_mean, listed_names
from privtab.base.names import ANY_PRIVILEGE, quoted_privilege
from privtab.base.sql_text import DIALECTS
from privtab.language.findings import Said, finding


@finding("P201")
def duplicate_row(entity: str, operation: str, first: Span) -> Said:
    """A row of `entity` that already occurs at `first`, with the same meaning."""
    return Said(
        f"`{entity}` has the row `{operation}` twice",
        f"line {first.line} says the same: drop one",
        (Located("first here", first),),
    )


@finding("P202")
def contradicting_row(entity: str, operation: str, first: Span) -> Said:
    """A row of `entity` that already occurs at `first`, with another meaning."""
    return Said(
        f"`{entity}` has two rows `{operation}` that contradict each other",
        f"line {first.line} says something else: keep one, or record the other under `ambiguous`",
        (Located("the other row", first),),
    )


@finding("P203")
def alias_cycle(names: Sequence[str], others: Sequence[Span]) -> Said:
    """Names, each an alias of the next; `others`: where the others than the first say so."""
    return Said(
        f"aliases form a cycle: {_cycle(names)}", "one of them must be a privilege of its own", _and_here(others)
    )


@finding("P204")
def can_cycle(rows: Sequence[str], others: Sequence[Span]) -> Said:
    """Rows (`entity/operation`), each of which refers to the next; `others`: where the others than the first do."""
    return Said(
        f"`can` forms a cycle: {_cycle(rows)}", "one of these rows must state its own requirements", _and_here(others)
    )


def _cycle(names: Sequence[str]) -> str:
    return " → ".join(f"`{name}`" for name in (*names, names[0]))


def _and_here(spans: Sequence[Span]) -> tuple[Located[str], ...]:
    return tuple(Located("and here", span) for span in spans)


@finding("P205")
def set_cycle(name: str, member: str) -> Said:
    """The set `name`, whose member `member` contains `name`."""
    return Said(
        f"the set `{name}` contains itself"
        if name == member
        else f"the sets `{member}` and `{name}` contain each other",
        "sets must eventually resolve to privileges",
    )


@finding("P206")
def privilege_cannot_bind(written: str, wrong: tuple[str, ...], types: tuple[str, ...], on: tuple[str, ...]) -> Said:
    """`written`, which stands for `wrong` privileges.

    None of them can be granted on any of the `types`; the first can be granted `on` others.
    """
    subject = (
        f"`{written}`"
        if wrong == (written,) or (len(wrong) == 1 and wrong[0] == written)
        else f"{listed_names(wrong)} of `{written}`"
    )
    return Said(
        f"{subject} cannot be granted on {listed_names(types, last='or')}",
        f"`{wrong[0]}` can be granted on {listed_names(on)}" if on else f"`{wrong[0]}` can be granted nowhere",
    )


@finding("P207")
def duplicate_name(what: str, name: str, first: Span) -> Said:
    """`name`, which is already declared at `first`."""
    return Said(
        f"{what} `{name}` is declared twice",
        f"line {first.line} declares `{name}`: every name is unique in a file",
        (Located("first here", first),),
    )


@finding("P208")
def row_without_condition(operation: str) -> Said:
    """The row of `operation`, which has neither `requires` nor `each`."""
    return Said(
        f"the row `{operation}` has neither `requires` nor `each`",
        "say who may: `requires: READ (TYPE)`, or `requires: anyone`",
    )


@finding("P209")
def can_with_objects(operation: str, types: Collection[str], objects: Collection[str]) -> Said:
    """A `can` whose row needs `with` objects."""
    return Said(
        f"`can {operation}` on {listed_names(types)} needs {listed_names(objects)}, which `can` cannot name",
        "a row with `with` objects cannot be reached by `can`: write its condition out",
    )


@finding("P212")
def created_entity_in_condition(entity: str) -> Said:
    """A row that creates `entity` although its condition refers to it."""
    return Said(
        f"the row creates the `{entity}`, but its condition refers to it",
        "require something on its parent (`parent`), or drop `creates`",
    )


@finding("P213")
def object_hides_type(name: str, entity: str) -> Said:
    """`name`, which already has a meaning in conditions on `entity`."""
    return Said(
        f"the object `{name}` hides the `{name}` of `{entity}`", f"give it another name: `{name}_2`, `other_{name}`"
    )


@finding("P214")
def object_without_types(name: str) -> Said:
    """The object `name`, for which no entity type fits all its uses."""
    return Said(
        f"no entity type fits the object `{name}`",
        "for every `can OP` a type needs a row, for every privilege it must be a type that it can be granted on",
    )


@finding("P215")
def effect_on_many_types(name: str, types: Collection[str]) -> Said:
    """An effect whose target `name` may have several types."""
    return Said(
        f"an effect on `{name}` needs one type, and it may be {listed_names(types, last='or')}",
        "give the object one type in `with`",
    )


@finding("P225")
def wrong_delegation(name: str, type_: str, table: str) -> Said:
    """A delegation of `name` on a type, which can delegate rows of `table`."""
    return Said(
        f"a request about a `{type_}` cannot name who gets `{name}`",
        f"write a privilege, a set, `{ANY_PRIVILEGE}`, `owner` or `{table}`",
    )


@wrong_delegation.also
def wrong_delegation_elsewhere(written: str, type_: str) -> Said:
    """A delegation on something else than the entity of the row, which is of a type."""
    return Said(
        f"a delegation is about the entity of the row, of type `{type_}`, and `{written}` is not it",
        f"write a row for the other type, or leave `({written})` out",
    )


@finding("P222")
def attribute_hides_flag(name: str) -> Said:
    """A flag whose key in the context an attribute of the request has as well."""
    return Said(
        f"`{name}` is an attribute of the request: the context cannot hold a flag of this name",
        f"rename one of them, or write `request.{name}`",
    )


@finding("P224")
def creator_without_role(kinds: Collection[str]) -> Said:
    """`creator: active_role` although the `kinds` of owners are without roles."""
    has = " and ".join(kinds)
    return Said(
        f"`creator: active_role` makes a role the owner, and a state refuses it: `kinds` has {has}",
        "add `role` to `kinds`",
    )


@creator_without_role.also
def creator_without_active_role() -> Said:
    """`creator: active_role` in a file whose requests name none."""
    return Said(
        "`creator: active_role` makes an active role the owner, and no request can name one",
        "let requests name them: `semantics: {active_roles: request}`",
    )


@finding("P226")
def wrong_sql(message: str, help_: str) -> Said:
    """A text that is refused."""
    return Said(message, help_)


@wrong_sql.also
def wrong_sql_dialect() -> Said:
    """Filters in a file that does not say in which dialect they are."""
    return Said(
        "the file does not say in which dialect of SQL its filters are", f"add `dialect: {next(iter(DIALECTS))}`"
    )


@finding("P210")
def not_a_principal(word: str, type_: str, kind: str) -> Said:
    """`word`, which requires a principal of `kind`; `type_` is not one."""
    return Said(
        f"`{word}` requires a {kind}, but `{type_}` is not one",
        f"if it is one, declare it: `types: {{{type_}: {{principal: {kind}}}}}`",
    )


@not_a_principal.also
def not_a_principal_without_rows(table: str, type_: str) -> Said:
    """`table`, whose rows are about principals; entities of `type_` are not."""
    return Said(
        f"`{table}` are rows about a user, group or role, and `{type_}` is none of them",
        f"declare it: `types: {{{type_}: {{principal: user}}}}`, or revoke `owner` or `member`",
    )


@finding("P211")
def no_owners(what: str) -> Said:
    """`what`, which refers to owners, in a file without `semantics.owner`."""
    return Said(
        f"{what} refers to owners, but the file has none",
        "say what ownership means: `semantics: {owner: {creator: true}}`",
    )


@finding("P216")
def too_deep(row: str, deepest: int) -> Said:
    """`row` (`entity/operation`), the start of a chain of `can` of more than `deepest` levels."""
    return Said(
        f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        "say in this row what is required, or refer to a row further down the chain",
    )


@finding("P217")
def two_nested_types(type_: str, outer: str) -> Said:
    """`type_`, which nests and lies below `outer`, which nests as well."""
    return Said(
        f"`{type_}` and `{outer}` both nest, and `{type_}` lies below `{outer}`",
        "only one type on a path may nest, otherwise the number of names would not tell which name belongs to which type",
    )


@finding("P218")
def selector_without_nesting(selector: str, target: str) -> Said:
    """`selector` before `target`, of which a path has only one."""
    message = f"`{selector} {target}` names one of several levels, and `{target}` has only one on a path"
    return Said(message, f"write `{target}`", fix=target)


@selector_without_nesting.also
def selector_without_nesting_unknown(selector: str, target: str, known: tuple[str, ...]) -> Said:
    """A word before `target` that is none of the known ones."""
    advice = (
        did_you_mean(selector, known)
        or f"before a target stands {listed_names(known, last='or')}, or a comma is missing"
    )
    return Said(f"unknown word `{selector}` before `{target}`", advice)


@finding("P219")
def misplaced_nested(type_: str, why: str, advice: str) -> Said:
    """`nested` of a type that cannot nest."""
    return Said(f"`{type_}` cannot nest: {why}", advice)


@misplaced_nested.also
def misplaced_nested_can(written: str) -> Said:
    """`can` about a level other than the nearest."""
    return Said(
        f"`can` asks about one entity, and `{written}` is not always an entity of the same type",
        "name the nearest one, or write the condition itself with this target",
    )


@misplaced_nested.also
def misplaced_nested_holder(word: str, written: str) -> Said:
    """`holds` or `self` about a level."""
    return Said(f"`{word}` cannot be asked about `{written}`", "only privileges, `owner` and `member` can")


@misplaced_nested.also
def misplaced_nested_compared_twice(written: str) -> Said:
    """A comparison of several levels with several levels."""
    return Said(
        f"`{written}` is compared with several levels, and is that of several itself",
        "compare the levels one by one with the nearest or the first",
    )


@misplaced_nested.also
def misplaced_nested_compared(written: str) -> Said:
    """An attribute of a level that may be several entities, or of different types."""
    return Said(
        f"an attribute is that of one entity, and `{written}` is not always one of the same type",
        "name a type: that means the nearest one",
    )


@finding("P220")
def misplaced_flat(type_: str, why: str) -> Said:
    """`flat` of a type whose ids cannot be flat."""
    return Said(f"ids of `{type_}` cannot be flat: {why}", "leave out `flat`")


@misplaced_flat.also
def misplaced_flat_nested(type_: str, below: str) -> Said:
    """A type that nests below `type_` and whose ids are paths."""
    return Said(f"`{below}` nests below `{type_}`, whose ids are flat", f"let the ids of `{below}` be flat as well")


@finding("P221", name="below-not-exact")
def below_not_exact_not_of(what: str, target: str) -> Said:
    """A target of `what`, which is neither privileges nor ownership."""
    return Said(f"{what} has no `or below`", f"name privileges, as in `READ ({target} or below)`, or the owner")


@below_not_exact_not_of.also
def below_not_exact_by_default(privilege: str, role: str) -> Said:
    """A privilege that a declared role gives by default on every entity of a type."""
    message = f"the role `{role}` gives `{privilege}` by default, also on entities that no row names"
    return Said(message, "drop the default grant, and grant the privilege to the role in the state")


@below_not_exact_not_of.also
def below_not_exact_nothing_below(privilege: str, type_: str) -> Said:
    """A privilege that nothing below a type can hold."""
    message = f"nothing below a `{type_}` can hold `{privilege}`"
    return Said(message, f"write `{quoted_privilege(privilege)} ({type_})`")


@finding("P223")
def effect_on_level(written: str) -> Said:
    """An effect on `written`."""
    return Said(
        f"an effect changes one entity of a known type, and `{written}` is not one",
        "name the entity itself, its nearest container, or a type that does not nest",
    )
