"""The other readings of ambiguous rows, as rules."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from privtab.ir.nodes import Program, Rule
from privtab.pipeline import load_program
from privtab.scenarios.masks import Key


def readings_of(policy: str | Path, program: Program, variant: str | None = None) -> dict[Key, dict[str, Rule]]:
    """For each ambiguous row, the rules of its other readings, except readings with other objects."""
    ambiguous = {key: rule for key, rule in program.rules.items() if rule.ambiguous is not None}
    found: dict[Key, dict[str, Rule]] = {}
    names = {
        key: [name for name, _ in rule.ambiguous.readings]
        for key, rule in ambiguous.items()
        if rule.ambiguous is not None
    }
    # Each compilation takes the next reading of every row.
    for chosen in zip_longest(*([(key, name) for name in of_row] for key, of_row in names.items())):
        selected = [pair for pair in chosen if pair is not None]
        other = load_program(policy, variant=variant, readings={f"{key[0]}/{key[1]}": name for key, name in selected})
        for key, name in selected:
            rule = other.rules[key]
            if rule.withs == program.rules[key].withs and (rule.each is None) == (program.rules[key].each is None):
                found.setdefault(key, {})[name] = rule
    return found
