"""Row filters and column masks of a type or two, whose texts take what there is of the caller, the entity and the request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from privtab.base.sql_text import DIALECTS

if TYPE_CHECKING:
    from worlds.policies import Draft

NAMES = ("wide", "Wide", "narrow", "last")


def types(draft: Draft, others: Collection[str], expression: Callable[[Draft, str], str]) -> list[str]:
    """Lines for `types` and the dialect. `others`: the lines of types that have some already. Nothing is drawn from what others draw from."""
    rnd = draft.generator("filters")
    if rnd is None:
        return []
    own = replace(draft, random=rnd, generators={"attributes": rnd} if "attributes" in draft.features else {})
    placeholders = ["{user}", "{groups}"]
    if "attributes" in draft.features:
        placeholders += [
            "{user.team}",
            "{user.badges}",
            "{entity.level}",
            "{entity.hidden}",
            "{request.hour}",
            "{top.color}",
        ]
    lines: list[str] = []
    taken = {line.split(":")[0].strip() for line in others}
    free = [type_ for type_ in draft.parents if type_ not in taken]
    for type_ in rnd.sample(free, k=min(2, len(free))):
        lines.append(f"  {type_}:")
        for kind in rnd.choice((["row_filters"], ["column_masks"], ["row_filters", "column_masks"])):
            lines.append(f"    {kind}:")
            for name in rnd.sample(NAMES, k=rnd.randint(1, 3)):
                values = rnd.choices(
                    [*placeholders, "{column}"] if kind == "column_masks" else placeholders, k=rnd.randint(0, 2)
                )
                lines.append(
                    f"      {name}: {{requires: '{expression(own, type_)}', sql: \"f( {', '.join(values)} )\"}}"
                )
    return [*lines, f"dialect: {rnd.choice([*DIALECTS])}"] if lines else []
