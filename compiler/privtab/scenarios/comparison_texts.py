"""Comparisons of attributes as entries of `needs` write them: `user.team = team (item:s/a)`, `color (item:s/a) in {red, gray}`.

A comparison of one request names its entities, so the slot of a target is the key of an entity here.
"""

from __future__ import annotations

import re
from typing import cast

from privtab.attributes import Attribute, AttributeKind, Operator, Scalar
from privtab.hints import did_you_mean
from privtab.ir.nodes import Compare, Program, Target, Term
from privtab.state.names import Problem, StateNames
from privtab.syntax.expression import Comparison, parse_condition

_TERM = r"(?:user|request)\.[A-Za-z][A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9_]*\s*\([^()]*\)"
_COMPARISON = re.compile(rf"(?P<left>{_TERM})(?:\s*(?P<relation><=|>=|=|<|>|\bin\b)\s*(?P<right>.+))?", re.DOTALL)
_CONTAINED = re.compile(rf"(?P<word>\"[^\"\n]*\"|[^\W\d]\w*)\s+in\s+(?P<set>{_TERM})")
_CODE = "T104"


def is_comparison(text: str) -> bool:
    """Whether the text of an atom is a comparison."""
    found = _COMPARISON.fullmatch(text)
    if found is None:
        return _CONTAINED.fullmatch(text) is not None
    return found["relation"] is not None or found["left"].startswith(("user.", "request."))


def comparison(program: Program, names: StateNames, text: str) -> Compare | Problem:
    """The comparison that a text says; or what is wrong with its attributes, entities, constants or types."""
    contained = _CONTAINED.fullmatch(text) if _COMPARISON.fullmatch(text) is None else None
    relation: Operator = "contains"
    if contained is not None:
        attribute, written = contained["set"], contained["word"]
    else:
        found = _COMPARISON.fullmatch(text)
        assert found is not None
        attribute = found["left"]
        relation, written = cast("Operator", found["relation"] or "="), (found["right"] or "true").strip()
    left = _term(names, attribute)
    if isinstance(left, Problem):
        return left
    right = _term(names, written) if re.fullmatch(_TERM, written) else _constants(relation, written)
    if isinstance(right, Problem):
        return right
    own = _declared(program, left)
    other = _declared(program, right) if isinstance(right, Term) else right
    if isinstance(own, Problem):
        return own
    if isinstance(other, Problem):
        return other
    comparable = (
        own.compares_to(relation, other)
        if isinstance(other, Attribute)
        else own.has_relation(relation) and all(own.compares_to_constant(relation, constant) for constant in other)
    )
    if not comparable:
        return Problem(_CODE, f"`{text}` compares what cannot be compared", f"`{attribute}` is {own.describe()}")
    return Compare(left=left, operator=relation, right=right)


def _term(names: StateNames, text: str) -> Term | Problem:
    """An attribute of the user, the request or an entity."""
    kind, dot, attribute = text.partition(".")
    if dot and kind in ("user", "request"):
        return Term(kind=cast("AttributeKind", kind), attribute=attribute)
    attribute, _, key = text.removesuffix(")").partition("(")
    entity = names.entity(key.strip())
    if isinstance(entity, Problem):
        return entity
    return Term(kind="entity", attribute=attribute.strip(), target=Target(slot=str(entity), type=entity.type))


def _constants(relation: Operator, text: str) -> tuple[Scalar, ...] | Problem:
    """The constants on the right; the grammar of conditions reads them."""
    parsed = parse_condition(f"{text} in user.a" if relation == "contains" else f"user.a {relation} {text}")
    if isinstance(parsed, Comparison) and isinstance(parsed.right, tuple):
        return tuple(constant.value for constant in parsed.right)
    return Problem(_CODE, f"`{text}` is no constant", 'write a word, "a text", a number, or with `in` {A, B}')


def _declared(program: Program, term: Term) -> Attribute | Problem:
    """The type of an attribute."""
    found = program.attribute(term)
    if found is not None:
        return found
    of = f"a `{term.target.type}`" if term.target is not None else f"the {term.kind}"
    known = program.attributes.of(term.kind)
    return Problem(_CODE, f"unknown attribute `{term.attribute}` of {of}", did_you_mean(term.attribute, known))
