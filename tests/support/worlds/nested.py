"""The type `mid` contains itself, and conditions name its levels."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def types(generator: Random | None) -> list[str]:
    """The lines of `types`."""
    return [f"  mid: {{nested: {generator.choice(['true', '4', '5'])}}}"] if generator else []


def levels(generator: Random | None, targets: Sequence[str], *, around: bool = False) -> list[str]:
    """The targets, some of them with a word that says which level is meant. `around`: `parent` may be one, too."""
    if generator is None:
        return list(targets)
    words = ("{}", "{}", "first {}", "any {}", "every {}", *(("parent", "parent") if around else ()))
    return [generator.choice(words).format(target) if target == "mid" else target for target in targets]
