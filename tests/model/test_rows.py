from __future__ import annotations

from collections.abc import Callable

import pytest

from privtab.ir.nodes import Source
from privtab.model import Policy
from privtab.model.lower import lower
from privtab_analysis.caller import asked_forms

Resolve = Callable[..., Policy]


def creates(policy: Policy) -> set[str]:
    return {f"{type_}/{op}" for (type_, op), row in policy.rows.items() if row.creates}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("{requires: WRITE (shop), grants: READ (shelf)}", True),
        ("{requires: WRITE (parent), grants: READ}", True),
        ("{requires: WRITE (shop), becomes: owner}", True),
        ("{requires: WRITE (shop)}", False),
        ("{requires: WRITE (shop), grants: READ (shop)}", False),
        ("{requires: WRITE (shop), grants: READ (item)}", False),
        ("{requires: WRITE (shop), revokes: READ (shelf)}", False),
        ("{requires: WRITE (shelf), grants: READ (shelf)}", False),
        ("{requires: WRITE (shop) or owner (entity), grants: READ (shelf)}", False),
        ("{requires: can look (shelf), grants: READ (shelf)}", False),
        ("{requires: can look (shop), grants: READ (shelf)}", True),
        ("{requires: WRITE (shop), creates: true}", True),
        ("{requires: WRITE (shop), grants: READ (shelf), creates: false}", False),
        ("{requires: WRITE (shop), with: {other: shelf}, grants: READ (other)}", False),
        ("{each: READ (shelf), grants: READ (shelf)}", False),
        ("{requires: WRITE (shop), each: can look (shelf), becomes: owner}", False),
        ("{each: READ (shop), becomes: owner}", True),
        ("{each: READ (shelf), becomes: owner, creates: true}", True),
    ],
)
def test_rows_that_create(resolve: Resolve, row: str, expected: bool) -> None:
    policy = resolve(
        "semantics: {owner: {kinds: [user]}}\ntables:\n  shop: {look: READ (shop)}\n"
        f"  shelf:\n    look: READ (shelf)\n    make: {row}\n"
    )
    assert ("shelf/make" in creates(policy)) == expected


@pytest.mark.parametrize(
    ("operation", "row", "named", "unnamed"),
    [
        ("make", "{requires: WRITE (shop), grants: READ}", False, True),
        ("create_one", "{requires: WRITE (shop), becomes: owner}", False, True),
        ("claim", "{requires: WRITE (shop), becomes: owner}", True, True),
        ("claim", "{requires: WRITE (shop), becomes: owner, creates: true}", False, True),
        ("claim", "{requires: WRITE (shop), becomes: owner, creates: false}", True, False),
        ("make", "{each: WRITE (shop), grants: READ}", True, True),
        ("claim", "{each: READ (shelf), becomes: owner}", True, True),
        ("claim", "{each: READ (shelf), creates: true}", True, True),
        ("claim", "{requires: WRITE (shelf), becomes: owner}", True, False),
    ],
)
def test_the_name_matters_unless_the_row_surely_creates(
    resolve: Resolve, operation: str, row: str, named: bool, unnamed: bool
) -> None:
    policy = resolve(f"semantics: {{owner: {{kinds: [user]}}}}\ntables:\n  shelf: {{{operation}: {row}}}\n")
    program = lower(policy)
    forms = asked_forms(program, program.rules["shelf", operation])
    assert forms == (True,) * named + (False,) * unnamed


def test_creators_become_owners(resolve: Resolve) -> None:
    policy = resolve(
        "semantics: {owner: {creator: true}}\n"
        "tables:\n  shelf: {create: WRITE (shop), add: WRITE (shop)}\n  item: {create: {requires: WRITE (shop), becomes: member}}\n"
    )
    assert [o.what for o in policy.rows["shelf", "create"].outcomes] == ["owner"]
    assert policy.rows["shelf", "add"].outcomes == ()
    assert [o.what for o in policy.rows["item", "create"].outcomes] == ["member"]
    assert creates(policy) == {"shelf/create", "item/create"}


def test_the_gate_speaks_of_the_entity_too(resolve: Resolve) -> None:
    policy = resolve(
        "semantics: {owner: {creator: true}, gate: member (shop)}\n"
        "tables:\n  shop:\n    create: anyone\n    found: {requires: anyone, becomes: owner, gate: none}\n"
    )
    assert creates(policy) == {"shop/found"}
    assert policy.rows["shop", "create"].gate is not None
    assert policy.rows["shop", "found"].gate is None


def test_sources_are_resolved(resolve: Resolve) -> None:
    policy = resolve(
        "sources: {d: {document: d.txt}}\ntables: {shop: {open: {requires: READ (shop), source: [15, 'd:3']}}}\n"
    )
    assert policy.rows["shop", "open"].source == Source(document="d.txt", line=15)


def test_an_object_of_any_type_has_every_type_that_makes_sense(resolve: Resolve) -> None:
    policy = resolve(
        """\
        privileges: {READ: , WRITE: {on: [shop, item]}}
        tables:
          shop:
            load: READ (shop)
            a: {with: {o: any}, requires: can load (o)}
            b: {with: {o: any}, requires: WRITE (o)}
            c: {with: {o: any}, requires: WRITE (o) and can load (o)}
            d: {with: {o: any}, requires: READ/WRITE (o)}
            e: {with: {o: any}, requires: READ (shop), each: can load (o)}
            f: {with: {o: any}, requires: holds (o)}
            g: {with: {o: any, p: [shelf, item]}, requires: can pair (p) and READ (o)}
          shelf: {load: READ (shelf), pair: READ (shelf)}
          item: {load: {with: {x: item}, requires: READ (x)}}
        """
    )
    types = {op: [(w.name, w.types) for w in row.withs] for (_, op), row in policy.rows.items() if row.withs}
    assert types["a"] == [("o", ("shop", "shelf"))]
    assert types["b"] == [("o", ("shop", "item"))]
    assert types["c"] == [("o", ("shop",))]
    assert types["d"] == [("o", ("shop", "shelf", "item", "user", "role"))]
    assert types["e"] == [("o", ("shop", "shelf"))]
    assert types["f"] == [("o", ("role",))]
    assert types["g"][1] == ("p", ("shelf", "item"))


def test_a_variant_s_objects_fit_the_rows_of_the_variant(resolve: Resolve) -> None:
    text = """\
    tables:
      shop: {link: {with: {o: any}, requires: can load (o)}, load: READ (shop)}
    variants: {more: {tables: {shelf: {load: READ (shelf)}}}}
    """
    assert resolve(text).rows["shop", "link"].withs[0].types == ("shop",)
    assert resolve(text, variant="more").rows["shop", "link"].withs[0].types == ("shop", "shelf")
