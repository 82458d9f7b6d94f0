"""Reports as pages that load nothing: heat maps, names that show what they hide, and the templates that all of them share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from privtab._resources import templates
from privtab.names import code_point

SHADES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Numbers by row and column. `left_out`: the numbers of rows and columns that are not shown."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    left_out: tuple[int, int]

    @property
    def most(self) -> int:
        """The largest cell."""
        return max((cell for row in self.cells for cell in row), default=0)


def rendered(folder: str, name: str, /, **values: Any) -> str:
    """A page from a template of a folder; values are escaped. Filters: `seen` for names of others, `number`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([templates() / folder, templates() / "pages", templates()]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seen"] = visible
    environment.filters["coded"] = _coded
    environment.filters["number"] = lambda value: f"{value:,}"
    return environment.get_template(f"{name}.html.j2").render(**values)


_SPACES = re.compile("^ | $|(?<= ) ")


def visible(text: str) -> str:
    r"""A name with outer and repeated spaces made visible, and invisible or direction-changing characters shown by code point.

    >>> visible("ann\u200b"), visible("bob ")
    ('ann⟨U+200B⟩', 'bob␣')
    """
    shown = _SPACES.sub("␣", text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else f"⟨{code_point(c)}⟩" for c in shown)


def _coded(text: str) -> Any:
    """A sentence with what stands in backticks as code."""
    from markupsafe import Markup

    parts = visible(text).split("`")
    if not len(parts) % 2:  # a name has a backtick
        return visible(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def shaded(heat: HeatMap) -> dict[str, Any]:
    """A heat map with a shade for each cell on a logarithmic scale, so that small and large counts are both visible."""
    most = math.log1p(heat.most) or 1.0
    rows = [
        {
            "name": name,
            "sum": sum(cells),
            "cells": [
                {
                    "count": count,
                    "shade": 0 if not count else max(1, math.ceil(math.log1p(count) / most * SHADES)),
                    "column": column,
                }
                for count, column in zip(cells, heat.columns, strict=True)
            ],
        }
        for name, cells in zip(heat.rows, heat.cells, strict=True)
    ]
    return {"name": heat.name, "columns": heat.columns, "rows": rows, "left_out": heat.left_out}
