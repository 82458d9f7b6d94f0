"""Named conditions in an editor: found where they are declared and used, described, and offered."""

from __future__ import annotations

from privtab.base import SourceFile
from privtab.language import read_policy
from privtab.model import DeclaredNames
from privtab_pages.lsp.completion import complete
from privtab_pages.lsp.hover import hover
from privtab_pages.lsp.occurrences import in_policy

TEXT = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: }}
privileges: [READ, WRITE]
conditions:
  KEEPER: WRITE (shop)
  EDITOR: KEEPER (entity) or READ (shelf)
semantics: {gate: {or: KEEPER (shop)}}
tables:
  shelf: {look: READ/KEEPER (shelf)}
"""


def names(text: str) -> DeclaredNames:
    tables, _ = read_policy(SourceFile.of("shop.yaml", text))
    assert tables is not None
    return DeclaredNames.of(tables, [])


def test_every_place_of_a_name_is_known() -> None:
    found = sorted(in_policy(names(TEXT)), key=lambda place: place.span)
    assert [(place.span.line, place.declares) for place in found if place.name == "KEEPER"] == [
        (7, True),
        (8, False),
        (9, False),
        (11, False),
    ]
    assert [place.span.line for place in found if place.name == "WRITE"] == [5, 7]


def test_hover_says_what_a_name_stands_for() -> None:
    declared = names(TEXT)
    place = next(place for place in in_policy(declared) if place.name == "EDITOR")
    assert hover(place, declared, None) == "**EDITOR**\n\nthe condition `KEEPER (entity) or READ (shelf)`"


def test_names_are_offered_where_privileges_are() -> None:
    offset = TEXT.index("KEEPER (shelf)}")
    offered = {item.text for item in complete(TEXT, offset, names(TEXT), {})}
    assert {"READ", "WRITE", "KEEPER", "EDITOR"} <= offered
