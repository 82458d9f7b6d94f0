"""What checks share about one policy."""

from __future__ import annotations

from dataclasses import replace

from privtab.base.source import SourceFile
from privtab.checks._view import View
from privtab.ir.shapes import shapes
from privtab.language.syntax import read_policy
from privtab.model import resolve

POLICY = """\
privtab: 1
system: shop
version: x
entities: {shop: {shelf: }}
privileges: [READ, WRITE]
tables:
  shop: {look: READ (shop), fill: READ (shop) and WRITE (shop)}
  shelf: {look: READ (shelf)}
"""


def test_shapes_of_rows_stay_right_beside_many_other_programs() -> None:
    tables, _ = read_policy(SourceFile.of("shop.yaml", POLICY))
    assert tables is not None
    policy, _ = resolve(tables)
    assert policy is not None
    view = View(policy)
    rules = {f"{type_}/{operation}": rule for (type_, operation), rule in view.program.rules.items()}
    first = view.shape_of(rules["shop/look"]).number
    for _ in range(10):  # more than are kept
        shapes(replace(view.program))
    assert view.shape_of(rules["shop/fill"]).number != first
