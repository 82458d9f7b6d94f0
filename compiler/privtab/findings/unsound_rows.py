"""What contradicts itself or cannot hold: rows, sets and aliases, and what types cannot be or contain: P201 to P226."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Located, Related, Severity, Span
from privtab.hints import did_you_mean, listed
from privtab.names import ANY_PRIVILEGE, quoted
from privtab.sql_text import DIALECTS

# P201: a row that occurs twice.
DUPLICATE_ROW = FindingKind("P201", "duplicate-row", Severity.ERROR)


def duplicate_row(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with the same meaning."""
    return DUPLICATE_ROW.at(
        span,
        f"`{entity}` has the row `{operation}` twice",
        f"line {first.line} says the same: drop one",
        related=(Related(message="first here", span=first),),
    )


# P202: two rows for the same operation with different meanings.
CONTRADICTING_ROW = FindingKind("P202", "contradicting-row", Severity.ERROR)


def contradicting_row(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with another meaning."""
    return CONTRADICTING_ROW.at(
        span,
        f"`{entity}` has two rows `{operation}` that contradict each other",
        f"line {first.line} says something else: keep one, or record the other under `ambiguous`",
        related=(Related(message="the other row", span=first),),
    )


# P203: aliases that form a cycle.
ALIAS_CYCLE = FindingKind("P203", "alias-cycle", Severity.ERROR)


def alias_cycle(targets: Sequence[Located[str]], names: Sequence[str]) -> Diagnostic:
    """Build the finding for a cycle of `names`, each an alias of the next; `targets` are their `alias_of`."""
    first, *others = targets
    cycle = " → ".join(f"`{name}`" for name in (*names, names[0]))
    return ALIAS_CYCLE.at(
        first.span,
        f"aliases form a cycle: {cycle}",
        "one of them must be a privilege of its own",
        related=tuple(Related(message="and here", span=other.span) for other in others),
    )


# P204: rows that refer to each other through `can`.
CAN_CYCLE = FindingKind("P204", "can-cycle", Severity.ERROR)


def can_cycle(spans: Sequence[Span], rows: Sequence[str]) -> Diagnostic:
    """Build the finding for a cycle of `rows` (`entity/operation`), each of which refers to the next at its span."""
    first, *others = spans
    cycle = " → ".join(f"`{row}`" for row in (*rows, rows[0]))
    return CAN_CYCLE.at(
        first,
        f"`can` forms a cycle: {cycle}",
        "one of these rows must state its own requirements",
        related=tuple(Related(message="and here", span=other) for other in others),
    )


# P205: a set that contains itself.
SET_CYCLE = FindingKind("P205", "set-cycle", Severity.ERROR)


def set_cycle(span: Span, name: str, member: str) -> Diagnostic:
    """Build the finding for the set `name`, whose member `member` contains `name`."""
    return SET_CYCLE.at(
        span,
        f"the set `{name}` contains itself"
        if name == member
        else f"the sets `{member}` and `{name}` contain each other",
        "sets must eventually resolve to privileges",
    )


# P206: a privilege required on a type that it cannot be granted on.
PRIVILEGE_CANNOT_BIND = FindingKind("P206", "privilege-cannot-bind", Severity.ERROR)


def privilege_cannot_bind(
    span: Span, written: str, wrong: tuple[str, ...], types: tuple[str, ...], on: tuple[str, ...]
) -> Diagnostic:
    """Build the finding for `written`, which stands for `wrong` privileges.

    None of them can be granted on any of the `types`; the first can be granted `on` others.
    """
    subject = (
        f"`{written}`"
        if wrong == (written,) or (len(wrong) == 1 and wrong[0] == written)
        else f"{listed(wrong)} of `{written}`"
    )
    return PRIVILEGE_CANNOT_BIND.at(
        span,
        f"{subject} cannot be granted on {listed(types, last='or')}",
        f"`{wrong[0]}` can be granted on {listed(on)}" if on else f"`{wrong[0]}` can be granted nowhere",
    )


# P207: two declarations with one name.
DUPLICATE_NAME = FindingKind("P207", "duplicate-name", Severity.ERROR)


def duplicate_name(span: Span, what: str, name: str, first: Span) -> Diagnostic:
    """Build the finding for `name` at `span`, which is already declared at `first`."""
    return DUPLICATE_NAME.at(
        span,
        f"{what} `{name}` is declared twice",
        f"line {first.line} declares `{name}`: every name is unique in a file",
        related=(Related(message="first here", span=first),),
    )


# P208: a row without a condition.
ROW_WITHOUT_CONDITION = FindingKind("P208", "row-without-condition", Severity.ERROR)


def row_without_condition(span: Span, operation: str) -> Diagnostic:
    """Build the finding for the row of `operation`, which has neither `requires` nor `each`."""
    return ROW_WITHOUT_CONDITION.at(
        span,
        f"the row `{operation}` has neither `requires` nor `each`",
        "say who may: `requires: READ (TYPE)`, or `requires: anyone`",
    )


# P209: `can` with an operation that needs `with` objects.
CAN_WITH_OBJECTS = FindingKind("P209", "can-with-objects", Severity.ERROR)


def can_with_objects(span: Span, operation: str, types: Collection[str], objects: Collection[str]) -> Diagnostic:
    """Build the finding for a `can` whose row needs `with` objects."""
    return CAN_WITH_OBJECTS.at(
        span,
        f"`can {operation}` on {listed(types)} needs {listed(objects)}, which `can` cannot name",
        "a row with `with` objects cannot be reached by `can`: write its condition out",
    )


# P212: a creation that requires something on an entity that does not exist yet.
CREATED_ENTITY_IN_CONDITION = FindingKind("P212", "created-entity-in-condition", Severity.ERROR)


def created_entity_in_condition(span: Span, entity: str) -> Diagnostic:
    """Build the finding for a row that creates `entity` although its condition refers to it."""
    return CREATED_ENTITY_IN_CONDITION.at(
        span,
        f"the row creates the `{entity}`, but its condition refers to it",
        "require something on its parent (`parent`), or drop `creates`",
    )


# P213: a `with` object whose name hides another target.
OBJECT_HIDES_TYPE = FindingKind("P213", "object-hides-type", Severity.ERROR)


def object_hides_type(span: Span, name: str, entity: str) -> Diagnostic:
    """Build the finding for `name`, which already has a meaning in conditions on `entity`."""
    return OBJECT_HIDES_TYPE.at(
        span,
        f"the object `{name}` hides the `{name}` of `{entity}`",
        f"give it another name: `{name}_2`, `other_{name}`",
    )


# P214: a `with` object that no type fits.
OBJECT_WITHOUT_TYPES = FindingKind("P214", "object-without-types", Severity.ERROR)


def object_without_types(span: Span, name: str) -> Diagnostic:
    """Build the finding for the object `name`, for which no entity type fits all its uses."""
    return OBJECT_WITHOUT_TYPES.at(
        span,
        f"no entity type fits the object `{name}`",
        "for every `can OP` a type needs a row, for every privilege it must be a type that it can be granted on",
    )


# P215: an effect on an object whose type is not fixed.
EFFECT_ON_MANY_TYPES = FindingKind("P215", "effect-on-many-types", Severity.ERROR)


def effect_on_many_types(span: Span, name: str, types: Collection[str]) -> Diagnostic:
    """Build the finding for an effect whose target `name` may have several types."""
    return EFFECT_ON_MANY_TYPES.at(
        span,
        f"an effect on `{name}` needs one type, and it may be {listed(types, last='or')}",
        "give the object one type in `with`",
    )


# P225: a delegation of what the request cannot name there.
WRONG_DELEGATION = FindingKind("P225", "wrong-delegation", Severity.ERROR)


def wrong_delegation(span: Span, name: str, type_: str, table: str) -> Diagnostic:
    """Build the finding for a delegation of `name` on a type, which can delegate rows of `table`."""
    return WRONG_DELEGATION.at(
        span,
        f"a request about a `{type_}` cannot name who gets `{name}`",
        f"write a privilege, a set, `{ANY_PRIVILEGE}`, `owner` or `{table}`",
    )


def wrong_delegation_elsewhere(span: Span, written: str, type_: str) -> Diagnostic:
    """Build the finding for a delegation on something else than the entity of the row, which is of a type."""
    return WRONG_DELEGATION.at(
        span,
        f"a delegation is about the entity of the row, of type `{type_}`, and `{written}` is not it",
        f"write a row for the other type, or leave `({written})` out",
    )


# P222: a flag has the name of an attribute of the request.
ATTRIBUTE_HIDES_FLAG = FindingKind("P222", "attribute-hides-flag", Severity.ERROR)


def attribute_hides_flag(span: Span, name: str) -> Diagnostic:
    """Build the finding for a flag whose key in the context an attribute of the request has as well."""
    return ATTRIBUTE_HIDES_FLAG.at(
        span,
        f"`{name}` is an attribute of the request: the context cannot hold a flag of this name",
        f"rename one of them, or write `request.{name}`",
    )


# P224: ownership for the creator's active role, in a file whose requests name none or whose roles may not own.
CREATOR_WITHOUT_ROLE = FindingKind("P224", "creator-without-role", Severity.ERROR)


def creator_without_role(span: Span, kinds: Collection[str], active_roles: str) -> Iterator[Diagnostic]:
    """What `creator: active_role` at `span` lacks in the `kinds` of owners and in `semantics.active_roles`."""
    if "role" not in kinds:
        message = (
            f"`creator: active_role` makes a role the owner, and a state refuses it: `kinds` has {' and '.join(kinds)}"
        )
        yield CREATOR_WITHOUT_ROLE.at(span, message, "add `role` to `kinds`")
    if active_roles == "none":
        message = "`creator: active_role` makes an active role the owner, and no request can name one"
        yield CREATOR_WITHOUT_ROLE.at(span, message, "let requests name them: `semantics: {active_roles: request}`")


# P226: the SQL of a row filter or a column mask that cannot be used.
WRONG_SQL = FindingKind("P226", "wrong-sql", Severity.ERROR)


def wrong_sql(span: Span, message: str, help_: str) -> Diagnostic:
    """Build the finding for a text that is refused."""
    return WRONG_SQL.at(span, message, help_)


def wrong_sql_dialect(span: Span) -> Diagnostic:
    """Build the finding for filters in a file that does not say in which dialect they are."""
    return WRONG_SQL.at(
        span, "the file does not say in which dialect of SQL its filters are", f"add `dialect: {next(iter(DIALECTS))}`"
    )


# P210: `self`, `holds` or revoked rows of an entity that is not such a principal.
NOT_A_PRINCIPAL = FindingKind("P210", "not-a-principal", Severity.ERROR)


def not_a_principal(span: Span, word: str, type_: str, kind: str) -> Diagnostic:
    """Build the finding for `word`, which requires a principal of `kind`; `type_` is not one."""
    return NOT_A_PRINCIPAL.at(
        span,
        f"`{word}` requires a {kind}, but `{type_}` is not one",
        f"if it is one, declare it: `types: {{{type_}: {{principal: {kind}}}}}`",
    )


def not_a_principal_without_rows(span: Span, table: str, type_: str) -> Diagnostic:
    """Build the finding for `table`, whose rows are about principals; entities of `type_` are not."""
    return NOT_A_PRINCIPAL.at(
        span,
        f"`{table}` are rows about a user, group or role, and `{type_}` is none of them",
        f"declare it: `types: {{{type_}: {{principal: user}}}}`, or revoke `owner` or `member`",
    )


# P211: ownership in a file without owners.
NO_OWNERS = FindingKind("P211", "no-owners", Severity.ERROR)


def no_owners(span: Span, what: str) -> Diagnostic:
    """Build the finding for `what`, which refers to owners, in a file without `semantics.owner`."""
    return NO_OWNERS.at(
        span,
        f"{what} refers to owners, but the file has none",
        "say what ownership means: `semantics: {owner: {creator: true}}`",
    )


# P216: a condition that refers too deeply through `can`.
TOO_DEEP = FindingKind("P216", "too-deep", Severity.ERROR)


def too_deep(span: Span, row: str, deepest: int) -> Diagnostic:
    """Build the finding for `row` (`entity/operation`), the start of a chain of `can` of more than `deepest` levels."""
    return TOO_DEEP.at(
        span,
        f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        "say in this row what is required, or refer to a row further down the chain",
    )


# P217: two types that nest on one path.
TWO_NESTED_TYPES = FindingKind("P217", "two-nested-types", Severity.ERROR)


def two_nested_types(span: Span, type_: str, outer: str) -> Diagnostic:
    """Build the finding for `type_`, which nests and lies below `outer`, which nests as well."""
    return TWO_NESTED_TYPES.at(
        span,
        f"`{type_}` and `{outer}` both nest, and `{type_}` lies below `{outer}`",
        "only one type on a path may nest, otherwise the number of names would not tell which name belongs to which type",
    )


# P218: a word before a target whose type does not nest, or an unknown word.
SELECTOR_WITHOUT_NESTING = FindingKind("P218", "selector-without-nesting", Severity.ERROR)


def selector_without_nesting(span: Span, selector: str, target: str) -> Diagnostic:
    """Build the finding for `selector` before `target`, of which a path has only one."""
    message = f"`{selector} {target}` names one of several levels, and `{target}` has only one on a path"
    return SELECTOR_WITHOUT_NESTING.at(span, message, f"write `{target}`", fix=target)


def selector_without_nesting_unknown(span: Span, selector: str, target: str, known: tuple[str, ...]) -> Diagnostic:
    """Build the finding for a word before `target` that is none of the known ones."""
    advice = (
        did_you_mean(selector, known) or f"before a target stands {listed(known, last='or')}, or a comma is missing"
    )
    return SELECTOR_WITHOUT_NESTING.at(span, f"unknown word `{selector}` before `{target}`", advice)


# P219: a type that cannot nest, or a condition that cannot name a level.
MISPLACED_NESTED = FindingKind("P219", "misplaced-nested", Severity.ERROR)


def misplaced_nested(span: Span, type_: str, why: str, advice: str) -> Diagnostic:
    """Build the finding for `nested` of a type that cannot nest."""
    return MISPLACED_NESTED.at(span, f"`{type_}` cannot nest: {why}", advice)


def misplaced_nested_can(span: Span, written: str) -> Diagnostic:
    """Build the finding for `can` about a level other than the nearest."""
    return MISPLACED_NESTED.at(
        span,
        f"`can` asks about one entity, and `{written}` is not always an entity of the same type",
        "name the nearest one, or write the condition itself with this target",
    )


def misplaced_nested_holder(span: Span, word: str, written: str) -> Diagnostic:
    """Build the finding for `holds` or `self` about a level."""
    return MISPLACED_NESTED.at(
        span, f"`{word}` cannot be asked about `{written}`", "only privileges, `owner` and `member` can"
    )


def misplaced_nested_compared_twice(span: Span, written: str) -> Diagnostic:
    """Build the finding for a comparison of several levels with several levels."""
    return MISPLACED_NESTED.at(
        span,
        f"`{written}` is compared with several levels, and is that of several itself",
        "compare the levels one by one with the nearest or the first",
    )


def misplaced_nested_compared(span: Span, written: str) -> Diagnostic:
    """Build the finding for an attribute of a level that may be several entities, or of different types."""
    return MISPLACED_NESTED.at(
        span,
        f"an attribute is that of one entity, and `{written}` is not always one of the same type",
        "name a type: that means the nearest one",
    )


# P220: a type whose ids cannot be flat.
MISPLACED_FLAT = FindingKind("P220", "misplaced-flat", Severity.ERROR)


def misplaced_flat(span: Span, type_: str, why: str) -> Diagnostic:
    """Build the finding for `flat` of a type whose ids cannot be flat."""
    return MISPLACED_FLAT.at(span, f"ids of `{type_}` cannot be flat: {why}", "leave out `flat`")


def misplaced_flat_nested(span: Span, type_: str, below: str) -> Diagnostic:
    """Build the finding for a type that nests below `type_` and whose ids are paths."""
    return MISPLACED_FLAT.at(
        span,
        f"`{below}` nests below `{type_}`, whose ids are flat",
        f"let the ids of `{below}` be flat as well",
    )


# P221: `or below` where it means nothing or cannot be decided exactly.
BELOW_NOT_EXACT = FindingKind("P221", "below-not-exact", Severity.ERROR)


def below_not_exact_not_of(span: Span, what: str, target: str) -> Diagnostic:
    """Build the finding for a target of `what`, which is neither privileges nor ownership."""
    return BELOW_NOT_EXACT.at(
        span, f"{what} has no `or below`", f"name privileges, as in `READ ({target} or below)`, or the owner"
    )


def below_not_exact_by_default(span: Span, privilege: str, role: str) -> Diagnostic:
    """Build the finding for a privilege that a declared role gives by default on every entity of a type."""
    message = f"the role `{role}` gives `{privilege}` by default, also on entities that no row names"
    return BELOW_NOT_EXACT.at(span, message, "drop the default grant, and grant the privilege to the role in the state")


def below_not_exact_nothing_below(span: Span, privilege: str, type_: str) -> Diagnostic:
    """Build the finding for a privilege that nothing below a type can hold."""
    message = f"nothing below a `{type_}` can hold `{privilege}`"
    return BELOW_NOT_EXACT.at(span, message, f"write `{quoted(privilege)} ({type_})`")


# P223: an effect on a level of a type that nests other than the nearest.
EFFECT_ON_LEVEL = FindingKind("P223", "effect-on-level", Severity.ERROR)


def effect_on_level(span: Span, written: str) -> Diagnostic:
    """Build the finding for an effect on `written`."""
    return EFFECT_ON_LEVEL.at(
        span,
        f"an effect changes one entity of a known type, and `{written}` is not one",
        "name the entity itself, its nearest container, or a type that does not nest",
    )
