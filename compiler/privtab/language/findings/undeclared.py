"""Names that nothing declares, and what is compared with what: P101 to P110."""

from __future__ import annotations

from collections.abc import Collection

from privtab.base.hints import did_you_mean, listed_names, nearest, not_a_condition
from privtab.language.findings import Said, finding


@finding("P101")
def unknown_privilege(name: str, known: Collection[str]) -> Said:
    """`name`, which is neither a privilege nor an alias nor a set."""
    return Said(
        f"unknown privilege `{name}`",
        not_a_condition(name) or did_you_mean(name, known) or f"the privileges and sets are {listed_names(known)}"
        if known
        else "the file lists no privileges: add `privileges: […]`",
        fix=nearest(name, known),
    )


@finding("P102")
def unknown_type(name: str, known: Collection[str]) -> Said:
    """`name`, which is not an entity type."""
    return Said(
        f"unknown entity type `{name}`",
        did_you_mean(name, known) or f"the entity types are {listed_names(known)}",
        fix=nearest(name, known),
    )


ITSELF = frozenset({"this", "self", "itself", "resource", "object", "target", "it"})
"""Names of the request's resource in other languages."""


@finding("P103")
def undefined_object(name: str, objects: Collection[str], targets: Collection[str]) -> Said:
    """`name`, which is neither one of the row's `with` objects nor one of its `targets`."""
    help_ = did_you_mean(name, (*objects, *targets)) if name not in ITSELF else "the row's own entity is `entity`"
    if help_ is None:
        help_ = f"targets here are {listed_names((*objects, *targets))}; a further object is declared by `with: {{{name}: TYPE}}`"
    return Said(f"undefined object `{name}`", help_)


@finding("P104")
def target_not_on_path(target: str, entity: str, targets: Collection[str]) -> Said:
    """A condition on `entity` that names `target`, which is not one of its `targets`."""
    help_ = f"targets here are {listed_names(targets)}; another object is declared by `with`"
    if target == "parent":
        help_ = f"`{entity}` is at the top: it has no parent"
    return Said(f"`{target}` is not on the path of `{entity}`", help_ if targets else None)


_UNKNOWN_OPERATION_ANY = 8


@finding("P105")
def unknown_operation(
    operation: str, types: Collection[str], known: Collection[str], *, is_privilege: bool = False
) -> Said:
    """`operation`, for which none of the `types` has a row."""
    instead = f"`{operation}` is a privilege: leave `can` out" if is_privilege else did_you_mean(operation, known)
    where = listed_names(types, last="or") if len(types) < _UNKNOWN_OPERATION_ANY else "any entity type"
    return Said(
        f"unknown operation `{operation}` on {where}",
        instead or (f"it has {listed_names(known)}" if known else "it has no rows at all"),
        fix=nearest(operation, known),
    )


@finding("P106")
def alias_of_nothing(alias: str, privilege: str, known: Collection[str]) -> Said:
    """`alias`, whose `privilege` does not exist."""
    return Said(
        f"`{alias}` is an alias of `{privilege}`, which is not a privilege",
        did_you_mean(privilege, known) or f"the privileges are {listed_names(known)}",
        fix=nearest(privilege, known),
    )


@finding("P107")
def unknown_source(name: str | None, known: Collection[str]) -> Said:
    """A row with the source `name`; None if it is ambiguous which source is meant."""
    help_ = "add `sources: {NAME: {document: FILE}}`"
    if known and name is not None:
        help_ = did_you_mean(name, known) or f"the sources are {listed_names(known)}"
    elif known:
        help_ = f"write `name:line`; the sources are {listed_names(known)}"
    return Said(f"unknown source `{name}`" if name else "the row does not say which source its line is in", help_)


@finding("P108")
def unknown_flag(operation: str, flag: str, used: Collection[str]) -> Said:
    """A flag that the row and what it reaches by `can` never use; `used`: the flags they use."""
    near = nearest(flag, used)
    known = f"the row uses {listed_names(sorted(used))}" if used else "write `CONDITION when FLAG`, or drop it"
    return Said(
        f"no condition of the row `{operation}` uses the flag `{flag}`", f"did you mean `{near}`?" if near else known
    )


@finding("P109")
def unknown_attribute(written: str, name: str, declared: Collection[str]) -> Said:
    """`written`, whose attribute `name` is not declared for its kind."""
    near = nearest(name, declared)
    known = f"declared are {listed_names(declared)}" if declared else "declare it: `attributes: {user: {NAME: TYPE}}`"
    return Said(f"unknown attribute `{written}`", f"did you mean `{near}`?" if near else known)


@unknown_attribute.also
def unknown_attribute_not_on(name: str, type_: str, on: Collection[str]) -> Said:
    """An attribute that entities of a type do not have."""
    return Said(f"a `{type_}` has no attribute `{name}`", f"`{name}` is declared on {listed_names(on)}")


@unknown_attribute.also
def unknown_attribute_not_given(name: str, type_: str) -> Said:
    """An attribute of an entity that contains the request's object: no request gives it."""
    return Said(
        f"requests do not give `{name}` of the `{type_}` that contains their object",
        "declare it `from: [state, request]`, or name the other one by `with:`",
    )


@finding("P110", name="wrong-comparison")
def wrong_comparison_different_types(left: str, left_type: str, right: str, right_type: str) -> Said:
    """Attributes of types that do not compare."""
    return Said(f"`{left}` is {left_type}, `{right}` is {right_type}", "compare values of one type")


@wrong_comparison_different_types.also
def wrong_comparison_constant(left: str, value: str, expected: str) -> Said:
    """A constant that an attribute cannot have."""
    return Said(f"`{left}` is never `{value}`", f"it is {expected}")


@wrong_comparison_different_types.also
def wrong_comparison_relation(left: str, left_type: str, operator: str, instead: str) -> Said:
    """A relation that values of a type do not stand in."""
    return Said(
        f"`{left}` is {left_type}, which has no `{'VALUE in' if operator == 'contains' else operator}`", instead
    )


@wrong_comparison_different_types.also
def wrong_comparison_truth(left: str, left_type: str) -> Said:
    """An attribute that stands alone and is not true or false."""
    return Said(f"`{left}` is {left_type}, so it does not stand alone", f"compare it, as in `{left} = VALUE`")
