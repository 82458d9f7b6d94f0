"""Render the page of a certification as a single self-contained file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privtab.characters import code_point
from privtab.spark.certification.findings import WHAT, Finding
from privtab.spark.certification.results import HeatMap, Totals

SHADES = 6
_COLUMNS = ("principal", "operation", "type", "path", "via_kind", "via_principal", "via_entity", "destructive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a certification is based on, and who requested it."""

    title: str
    system: str
    version: str
    policy: str
    policy_digest: str
    state: str
    state_revision: str
    made: str
    by: str
    privtab: str
    asked: tuple[tuple[str, str], ...] = ()
    """The scope of the matrix, as pairs of label and description."""


def render(
    origin: Origin,
    totals: Totals,
    maps: Sequence[HeatMap],
    findings: Sequence[Finding],
    rows: Sequence[Mapping[str, Any]],
    left_out: Mapping[str, str],
    unchecked: Mapping[str, str],
    data: str,
) -> str:
    """The page as HTML. `rows`: the rows that it shows; `data`: where all rows are, relative to the page.

    `unchecked`: the kinds of findings that were not checked, each with the reason.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from privtab._resources import templates

    environment = Environment(
        loader=FileSystemLoader(templates() / "certify"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seen"] = visible
    environment.filters["number"] = lambda value: f"{value:,}"
    kinds = [(kind, [f for f in findings if f.kind == kind]) for kind in WHAT]
    return environment.get_template("report.html.j2").render(
        origin=origin,
        totals=totals,
        maps=[_shaded(heat) for heat in maps],
        findings=[
            {
                "kind": kind,
                "what": WHAT[kind],
                "level": found[0].level,
                "found": found,
                "count": sum(finding.count for finding in found),
            }
            for kind, found in kinds
            if found
        ],
        quiet=[kind for kind, found in kinds if not found and kind not in unchecked],
        unchecked=unchecked,
        shown=len(rows),
        data=data,
        left_out=sorted(left_out.items()),
        rows=script_json([[_visible(row.get(column)) for column in _COLUMNS] for row in rows]),
    )


_SPACES = re.compile("^ | $|(?<= ) ")


def visible(text: str) -> str:
    r"""A name with outer and repeated spaces made visible, and invisible or direction-changing characters shown by code point.

    >>> visible("ann\u200b"), visible("bob ")
    ('ann⟨U+200B⟩', 'bob␣')
    """
    shown = _SPACES.sub("␣", text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else f"⟨{code_point(c)}⟩" for c in shown)


def _visible(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def script_json(value: object) -> str:
    r"""JSON that is safe inside a `script` element: it cannot end the element or begin a comment.

    >>> script_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _shaded(heat: HeatMap) -> dict[str, Any]:
    """A heat map with a shade for each cell on a logarithmic scale, so that small and large counts are both visible."""
    import math

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
