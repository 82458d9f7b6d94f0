"""Conditions compiled to closures over the bits of atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from privtab.engines.conditions import AllOf, AnyOf, Atom, Condition


def closure_of(condition: Condition, bits: Mapping[Condition, int], free: int) -> Callable[[int], bool]:
    """Compile a condition to a function of the bits of all atoms.

    `free`: a bit above those of atoms. From there on, parts that stand in several places have bits, too, and are worked out first.
    """
    places = condition.places()
    shared = [part for part, count in places.items() if count > 1 and not isinstance(part, Atom)]
    known_bits = dict(bits)
    known_bits.update((part, free << number) for number, part in enumerate(shared))
    steps = [(known_bits[part], _compiled(part, known_bits)) for part in shared]
    whole = _compiled(condition, known_bits)
    if not steps:
        return whole

    def decide(known: int) -> bool:
        for bit, is_met in steps:
            if is_met(known):
                known |= bit
        return whole(known)

    return decide


def _compiled(condition: Condition, bits: Mapping[Condition, int]) -> Callable[[int], bool]:
    match condition:
        case Atom():
            fact_bit = bits[condition]
            return lambda known: known & fact_bit != 0
        case AllOf():
            needed, rest = _split(condition.parts, bits)
            if not rest:
                return lambda known: known & needed == needed
            return lambda known: known & needed == needed and all(part(known) for part in rest)
        case AnyOf():
            enough, rest = _split(condition.parts, bits)
            if not rest:
                return lambda known: known & enough != 0
            return lambda known: known & enough != 0 or any(part(known) for part in rest)
        case _:
            assert_never(condition)


def _split(parts: Iterable[Condition], bits: Mapping[Condition, int]) -> tuple[int, tuple[Callable[[int], bool], ...]]:
    """The bits of the parts that have any, and the other parts compiled."""
    found = 0
    rest = []
    for part in parts:
        if part in bits:
            found |= bits[part]
        else:
            rest.append(_compiled(part, bits))
    return found, tuple(rest)
