"""Names that nothing declares, and what is compared with what: P101 to P110."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest, not_a_condition

# P101: a privilege that the file does not declare.
UNKNOWN_PRIVILEGE = FindingKind("P101", "unknown-privilege", Severity.ERROR)


def unknown_privilege(span: Span, name: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is neither a privilege nor an alias nor a set."""
    return UNKNOWN_PRIVILEGE.at(
        span,
        f"unknown privilege `{name}`",
        not_a_condition(name) or did_you_mean(name, known) or f"the privileges and sets are {listed(known)}"
        if known
        else "the file lists no privileges: add `privileges: […]`",
        fix=nearest(name, known),
    )


# P102: an entity type that the file does not declare.
UNKNOWN_TYPE = FindingKind("P102", "unknown-type", Severity.ERROR)


def unknown_type(span: Span, name: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is not an entity type."""
    return UNKNOWN_TYPE.at(
        span,
        f"unknown entity type `{name}`",
        did_you_mean(name, known) or f"the entity types are {listed(known)}",
        fix=nearest(name, known),
    )


# P103: a target that is neither an entity type nor an object of the row.
UNDEFINED_OBJECT = FindingKind("P103", "undefined-object", Severity.ERROR)
ITSELF = frozenset({"this", "self", "itself", "resource", "object", "target", "it"})
"""Names of the request's resource in other languages."""


def undefined_object(span: Span, name: str, objects: Collection[str], targets: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is neither one of the row's `with` objects nor one of its `targets`."""
    help_ = did_you_mean(name, (*objects, *targets)) if name not in ITSELF else "the row's own entity is `entity`"
    if help_ is None:
        help_ = (
            f"targets here are {listed((*objects, *targets))}; a further object is declared by `with: {{{name}: TYPE}}`"
        )
    return UNDEFINED_OBJECT.at(span, f"undefined object `{name}`", help_)


# P104: a target that is not on the object's path.
TARGET_NOT_ON_PATH = FindingKind("P104", "target-not-on-path", Severity.ERROR)


def target_not_on_path(span: Span, target: str, entity: str, targets: Collection[str]) -> Diagnostic:
    """Build the finding for a condition on `entity` that names `target`, which is not one of its `targets`."""
    help_ = f"targets here are {listed(targets)}; another object is declared by `with`"
    if target == "parent":
        help_ = f"`{entity}` is at the top: it has no parent"
    return TARGET_NOT_ON_PATH.at(span, f"`{target}` is not on the path of `{entity}`", help_ if targets else None)


# P105: `can` with an operation that the type has no row for.
UNKNOWN_OPERATION = FindingKind("P105", "unknown-operation", Severity.ERROR)
_UNKNOWN_OPERATION_ANY = 8


def unknown_operation(
    span: Span, operation: str, types: Collection[str], known: Collection[str], *, is_privilege: bool = False
) -> Diagnostic:
    """Build the finding for `operation`, for which none of the `types` has a row."""
    instead = f"`{operation}` is a privilege: leave `can` out" if is_privilege else did_you_mean(operation, known)
    where = listed(types, last="or") if len(types) < _UNKNOWN_OPERATION_ANY else "any entity type"
    return UNKNOWN_OPERATION.at(
        span,
        f"unknown operation `{operation}` on {where}",
        instead or (f"it has {listed(known)}" if known else "it has no rows at all"),
        fix=nearest(operation, known),
    )


# P106: an alias of a privilege that does not exist.
ALIAS_OF_NOTHING = FindingKind("P106", "alias-of-nothing", Severity.ERROR)


def alias_of_nothing(span: Span, alias: str, privilege: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `alias`, whose `privilege` does not exist."""
    return ALIAS_OF_NOTHING.at(
        span,
        f"`{alias}` is an alias of `{privilege}`, which is not a privilege",
        did_you_mean(privilege, known) or f"the privileges are {listed(known)}",
        fix=nearest(privilege, known),
    )


# P107: a row from a document that the file does not declare.
UNKNOWN_SOURCE = FindingKind("P107", "unknown-source", Severity.ERROR)


def unknown_source(span: Span, name: str | None, known: Collection[str]) -> Diagnostic:
    """Build the finding for a row with the source `name`; None if it is ambiguous which source is meant."""
    help_ = "add `sources: {NAME: {document: FILE}}`"
    if known and name is not None:
        help_ = did_you_mean(name, known) or f"the sources are {listed(known)}"
    elif known:
        help_ = f"write `name:line`; the sources are {listed(known)}"
    return UNKNOWN_SOURCE.at(
        span, f"unknown source `{name}`" if name else "the row does not say which source its line is in", help_
    )


# P108: `flags` of a row names a flag that none of its conditions uses.
UNKNOWN_FLAG = FindingKind("P108", "unknown-flag", Severity.ERROR)


def unknown_flag(span: Span, operation: str, flag: str, used: Collection[str]) -> Diagnostic:
    """Build the finding for a flag that the row and what it reaches by `can` never use; `used`: the flags they use."""
    near = nearest(flag, used)
    known = f"the row uses {listed(sorted(used))}" if used else "write `CONDITION when FLAG`, or drop it"
    return UNKNOWN_FLAG.at(
        span,
        f"no condition of the row `{operation}` uses the flag `{flag}`",
        f"did you mean `{near}`?" if near else known,
    )


# P109: a condition compares an attribute that the policy does not declare, or that its entity does not have.
UNKNOWN_ATTRIBUTE = FindingKind("P109", "unknown-attribute", Severity.ERROR)


def unknown_attribute(span: Span, written: str, name: str, declared: Collection[str]) -> Diagnostic:
    """Build the finding for `written`, whose attribute `name` is not among those declared for its kind."""
    near = nearest(name, declared)
    known = f"declared are {listed(declared)}" if declared else "declare it: `attributes: {user: {NAME: TYPE}}`"
    return UNKNOWN_ATTRIBUTE.at(span, f"unknown attribute `{written}`", f"did you mean `{near}`?" if near else known)


def unknown_attribute_not_on(span: Span, name: str, type_: str, on: Collection[str]) -> Diagnostic:
    """Build the finding for an attribute that entities of a type do not have."""
    return UNKNOWN_ATTRIBUTE.at(span, f"a `{type_}` has no attribute `{name}`", f"`{name}` is declared on {listed(on)}")


def unknown_attribute_not_given(span: Span, name: str, type_: str) -> Diagnostic:
    """Build the finding for an attribute of an entity that contains the request's object: no request gives it."""
    return UNKNOWN_ATTRIBUTE.at(
        span,
        f"requests do not give `{name}` of the `{type_}` that contains their object",
        "declare it `from: [state, request]`, or name the other one by `with:`",
    )


# P110: a comparison of values that do not compare.
WRONG_COMPARISON = FindingKind("P110", "wrong-comparison", Severity.ERROR)


def wrong_comparison_different_types(span: Span, left: str, left_type: str, right: str, right_type: str) -> Diagnostic:
    """Build the finding for attributes of types that do not compare."""
    return WRONG_COMPARISON.at(
        span, f"`{left}` is {left_type}, `{right}` is {right_type}", "compare values of one type"
    )


def wrong_comparison_constant(span: Span, left: str, value: str, expected: str) -> Diagnostic:
    """Build the finding for a constant that an attribute cannot have."""
    return WRONG_COMPARISON.at(span, f"`{left}` is never `{value}`", f"it is {expected}")


def wrong_comparison_relation(span: Span, left: str, left_type: str, operator: str, instead: str) -> Diagnostic:
    """Build the finding for a relation that values of a type do not stand in."""
    return WRONG_COMPARISON.at(
        span, f"`{left}` is {left_type}, which has no `{'VALUE in' if operator == 'contains' else operator}`", instead
    )


def wrong_comparison_truth(span: Span, left: str, left_type: str) -> Diagnostic:
    """Build the finding for an attribute that stands alone and is not true or false."""
    return WRONG_COMPARISON.at(
        span, f"`{left}` is {left_type}, so it does not stand alone", f"compare it, as in `{left} = VALUE`"
    )
