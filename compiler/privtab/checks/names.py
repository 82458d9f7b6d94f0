"""Names and what stands for others: near duplicates, differences in case, scripts, sets, aliases and roles: P325, P326, P332, P333, P344, P351."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from operator import itemgetter

from privtab.base.caching import once
from privtab.base.diagnostics import Located, Severity, Span
from privtab.base.names import mixed_scripts as letter_of_another_script
from privtab.base.names import small_letters
from privtab.checks._parts import condition_cells
from privtab.checks._view import Found, check
from privtab.language.syntax.nodes import RowDecl, Tables
from privtab.model import nodes as m
from privtab.model.conditions import privilege_names
from privtab.model.nodes import conditions, flags


@check("P325", Severity.NOTE)
def unused_set(policy: m.Policy) -> Iterator[Found]:
    """Sets that no condition, effect, role, other set or `implies` uses, nor what owners hold; readings and variants count.

    And named conditions that no condition uses.
    """
    tables = policy.tables
    used = {word.value for set_ in tables.sets for word in set_.members}
    if tables.semantics.owner is not None:
        used |= {word.value for word in tables.semantics.owner.holds}
    used |= {word.value for privilege in tables.privileges for word in privilege.implies}
    for role in tables.all_roles:
        used |= {word.value for _, words in role.grants for word in words}
    used |= set(_in_cells(tables))
    for set_ in tables.sets:
        if set_.name.value not in used:
            yield Found(
                set_.name.span,
                f"no row, role or set uses the set `{set_.name.value}`",
                "keep it if states grant it by that name; else drop it",
            )
    for decl in tables.conditions:
        if (name := decl.name.value) not in used:
            yield Found(decl.name.span, f"no row uses the condition `{name}`", f"write `{name} (TYPE)`, or drop it")


def _in_cells(tables: Tables) -> Iterator[str]:
    for cell in condition_cells(tables):
        if cell.expression is not None:
            yield from (name.text for name in privilege_names(cell.expression))
    effects = (effect for row in tables.all_rows for body in row.bodies for effect in body.effects)
    yield from (name.text for effect in effects for term in effect.terms for name in term.names)


@check("P326", Severity.NOTE)
def alias_chain(policy: m.Policy) -> Iterator[Found]:
    """Aliases of another alias instead of the privilege itself."""
    for decl in policy.tables.privileges:
        if decl.alias_of is not None and decl.alias_of.value in policy.aliases:
            privilege = policy.aliases[decl.name.value].of
            yield Found(
                decl.alias_of.span,
                f"`{decl.name.value}` is an alias of the alias `{decl.alias_of.value}`",
                f"name the privilege itself: `alias_of: {privilege}`",
            )


_LONG = 5
"""In shorter words, one letter often makes the intended difference, as in get and set."""


@check("P332", Severity.NOTE)
def near_duplicate_name(policy: m.Policy) -> Iterator[Found]:
    """Names of one kind that differ only by plural, word order, or one letter; names that differ in case alone are P344.

    Skipped are: an alias and its privilege; operations that share a row, or have different titles; and `single` types,
    as collections of another type. Plurals and word order of operations are left to the document if every row of both
    has a `source`.
    """
    same_privilege = aliases(policy)
    intended: dict[str, Callable[[str, str, bool], bool]] = {
        "privilege": lambda name, other, _: same_privilege(name, other),
        "operation": _intended_operations(_rows(policy)),
    }
    for kind, names in names_by_kind(policy).items():
        if kind != "attribute":
            single = {name for name, type_ in policy.entities.items() if type_.single} if kind == "type" else set()
            compared = {name: span for name, span in names.items() if name not in single}
            yield from _pairs(kind, compared, intended.get(kind, lambda *_: False))


@check("P351", Severity.WARNING)
def mixed_scripts(policy: m.Policy) -> Iterator[Found]:
    """Names with letters of several scripts, which may look like the names of one."""
    for kind, names in names_by_kind(policy).items():
        for name, span in names.items():
            if (letter := letter_of_another_script(name)) is not None:
                advice = "states and requests must spell it so: write it in one script"
                yield Found(span, f"the {kind} `{name}` mixes scripts: {letter}", advice)


@once
def names_by_kind(policy: m.Policy) -> dict[str, Mapping[str, Span]]:
    """The names that a policy declares, each with its first place."""
    tables = policy.tables
    everyone = tables.semantics.everyone
    return {
        "type": {decl.name.value: decl.name.span for decl in tables.entities},
        "privilege": {name: word.span for name, word in policy.declared.items()}
        | {decl.name.value: decl.name.span for decl in tables.conditions},
        "role": {role.name.value: role.name.span for role in tables.roles},
        "attribute": {attribute.name.value: attribute.name.span for attribute in tables.attributes},
        "flag": _flags(policy),
        "group": {} if everyone is None else {everyone.value: everyone.span},
        "operation": {name: min(decl.span for decl in decls) for name, decls in _rows(policy).items()},
    }


def _rows(policy: m.Policy) -> dict[str, list[RowDecl]]:
    rows: dict[str, list[RowDecl]] = {}
    for row in policy.rows.values():
        rows.setdefault(row.operation, []).append(row.decl)
    return rows


def _pairs(kind: str, names: Mapping[str, Span], is_intended: Callable[[str, str, bool], bool]) -> Iterator[Found]:
    for name, other in _similar_pairs(names):
        same_words = _words(name) == _words(other)
        if name.casefold() == other.casefold():
            continue
        if (same_words or _one_letter(name, other)) and not is_intended(name, other, same_words):
            (span, other_span) = names[name], names[other]
            (first, _), (second, second_span) = sorted(((name, span), (other, other_span)), key=lambda pair: pair[1])
            yield Found(
                second_span,
                f"the {kind}s `{first}` and `{second}` are easily confused",
                "use one name if they mean the same; else distinguish them, by a title if the names are fixed",
            )


def _similar_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that may be confused: names with the same words, or equal after dropping a letter of one word."""
    groups: dict[object, list[str]] = {}
    for name in names:
        groups.setdefault(_words(name), []).append(name)
        words = name.casefold().split("_")
        long = [(i, word) for i, word in enumerate(words) if len(word) >= _LONG - 1 and word.isalpha()]
        for key in {(i, _without(words, i, index)) for i, word in long for index in range(len(word) + 1)}:
            groups.setdefault(key, []).append(name)
    return sorted({pair for group in groups.values() for pair in combinations(group, 2)})


def _without(words: list[str], number: int, index: int) -> tuple[str, ...]:
    """The words, without one letter of one of them; all letters stay if `index` is behind its end."""
    word = words[number]
    return (*words[:number], word[:index] + word[index + 1 :], *words[number + 1 :])


def aliases(policy: m.Policy) -> Callable[[str, str], bool]:
    """A test that tells whether two names are of one privilege."""
    root = {name: name for name in policy.privileges} | {name: alias.of for name, alias in policy.aliases.items()}
    return lambda name, other: name in root and root.get(name) == root.get(other)


def _intended_operations(rows: Mapping[str, list[RowDecl]]) -> Callable[[str, str, bool], bool]:
    def is_intended(name: str, other: str, same_words: bool) -> bool:  # noqa: FBT001  called by position
        decls, other_decls = rows[name], rows[other]
        together = {id(decl.body) for decl in decls} & {id(decl.body) for decl in other_decls}
        titled = all(decl.title for decl in (*decls, *other_decls))
        return bool(together) or titled or (same_words and all(decl.source for decl in (*decls, *other_decls)))

    return is_intended


def _flags(policy: m.Policy) -> dict[str, Span]:
    first: dict[str, Span] = {}
    for row in policy.rows.values():
        for condition in conditions(row):
            for required in flags(condition):
                first.setdefault(required.flag, required.spot.span)
    return first


def _words(name: str) -> tuple[str, ...]:
    """The words of a name, regardless of case, plural and order."""
    parts = re.split(r"[_\-.:]+", small_letters(name))
    return tuple(sorted(part.removesuffix("s") if len(part) > 3 else part for part in parts))


def _one_letter(name: str, other: str) -> bool:
    """Return whether one word differs by one letter, or by two swapped letters, after the same first letter."""
    words, other_words = name.casefold().split("_"), other.casefold().split("_")
    if len(words) != len(other_words):
        return False
    differing = [(a, b) for a, b in zip(words, other_words, strict=True) if a != b]
    if len(differing) != 1:
        return False
    a, b = sorted(differing[0], key=len)
    if len(a) < _LONG or a[0] != b[0] or len(b) - len(a) > 1 or any(c.isdigit() for c in a + b):
        return False
    index = next((i for i, (c, d) in enumerate(zip(a, b, strict=False)) if c != d), len(a))
    if len(a) < len(b):
        return a[index:] == b[index + 1 :]
    return a[index + 1 :] == b[index + 1 :] or (
        a[index : index + 2] == b[index : index + 2][::-1] and a[index + 2 :] == b[index + 2 :]
    )


@check("P333", Severity.NOTE)
def same_role(policy: m.Policy) -> Iterator[Found]:
    """Roles with the same scope and default grants, after resolving sets and aliases; skips roles without grants."""
    first: dict[tuple[frozenset[str], frozenset[tuple[str, str]]], str] = {}
    places = {role.name.value: role.name.span for role in policy.tables.roles}
    for role in policy.roles.values():
        grants = frozenset((type_, privilege) for type_, privileges in role.grants for privilege in privileges)
        if not grants or role.name not in places:
            continue
        twin = first.setdefault((frozenset(role.scopes), grants), role.name)
        if twin != role.name:
            yield Found(
                places[role.name],
                f"the role `{role.name}` grants the same as `{twin}`",
                "one role is enough, unless states grant more to one of them",
                related=(Located("the other role", places[twin]),) if twin in places else (),
            )


@check("P344", Severity.WARNING)
def differs_in_case(policy: m.Policy) -> Iterator[Found]:
    """Names of one kind that are the same where case does not count, as in SQL, in HTTP headers and in many file systems."""
    same_privilege = aliases(policy)
    for kind, names in names_by_kind(policy).items():
        first: dict[str, str] = {}
        for name, span in sorted(names.items(), key=itemgetter(1)):
            other = first.setdefault(name.casefold(), name)
            if other != name and not (kind == "privilege" and same_privilege(name, other)):
                yield Found(
                    span,
                    f"the {kind}s `{other}` and `{name}` differ in case alone",
                    "they are different names here; use one spelling if they mean the same, else another word",
                )
