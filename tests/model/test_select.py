from __future__ import annotations

from collections.abc import Callable

import pytest

from privtab.base.errors import UsageError
from privtab.model import Policy

Resolve = Callable[..., Policy]


def origins(policy: Policy, operation: str) -> dict[str, str]:
    return {type_: row.origin for (type_, op), row in policy.rows.items() if op == operation}


def text(policy: Policy, entity: str, operation: str) -> tuple[str | None, str | None]:
    row = policy.rows[entity, operation]
    return row.requires_text, row.each_text


def test_tables_come_before_any_and_any_before_core(resolve: Resolve) -> None:
    policy = resolve(
        """\
        core: {look: READ (entity)}
        any: {look: {for: [shelf, item], requires: WRITE (entity)}}
        tables: {item: {look: READ + WRITE (item)}}
        """
    )
    assert origins(policy, "look") == {"shop": "core", "shelf": "any", "item": "row", "user": "core", "role": "core"}


def test_any_under_tables_is_the_any_of_the_file(resolve: Resolve) -> None:
    inside = resolve("tables:\n  any: {look: {for: [shelf], requires: WRITE (entity)}, peek: READ (entity)}\n")
    outside = resolve("any: {look: {for: [shelf], requires: WRITE (entity)}, peek: READ (entity)}\n")
    assert origins(inside, "look") == origins(outside, "look") == {"shelf": "any"}
    assert origins(inside, "peek") == origins(outside, "peek") == dict.fromkeys(inside.entities, "any")


def test_any_in_both_places_is_one_list(resolve: Resolve) -> None:
    policy = resolve(
        "any: {look: {for: [shelf], requires: READ (shelf)}}\n"
        "tables: {any: {look: {for: [item], requires: WRITE (item)}}, shop: {look: READ (shop)}}\n"
    )
    assert origins(policy, "look") == {"shop": "row", "shelf": "any", "item": "any"}


@pytest.mark.parametrize("over", ["any: {look: WRITE (entity)}", "tables: {any: {look: WRITE (entity)}}"])
@pytest.mark.parametrize("base", ["any: {look: READ (entity)}", "tables: {any: {look: READ (entity)}}"])
def test_any_of_a_variant_replaces_any_wherever_they_stand(resolve: Resolve, base: str, over: str) -> None:
    policy = resolve(f"{base}\nvariants: {{strict: {{{over}}}}}\n", variant="strict")
    assert text(policy, "item", "look")[0] == "WRITE (entity)"


def test_rows_for_some_types_come_before_rows_for_all(resolve: Resolve) -> None:
    policy = resolve("any:\n  look: {for: [item], requires: WRITE (item)}\n  peek: READ (entity)\n")
    assert origins(policy, "look") == {"item": "any"}
    assert len(origins(policy, "peek")) == 5


def test_two_rows_of_any_for_different_types_stand_side_by_side(resolve: Resolve) -> None:
    policy = resolve(
        "any:\n  look: {for: [shop], requires: READ (shop)}\n  look: {for: [item], requires: WRITE (item)}\n"
    )
    assert text(policy, "shop", "look") == ("READ (shop)", None)
    assert text(policy, "item", "look") == ("WRITE (item)", None)


def test_core_rows_about_the_parent_pass_over_roots(resolve: Resolve) -> None:
    policy = resolve(
        "core: {create: WRITE (parent), list: {each: can create (entity) or READ (parent)}, look: READ (entity)}\n"
    )
    assert "shop" not in origins(policy, "create")
    assert "shop" not in origins(policy, "list")
    assert "shop" in origins(policy, "look")


def test_rows_keep_the_order_of_entities_and_then_of_the_file(resolve: Resolve) -> None:
    policy = resolve(
        "entities: {b: {c: }, a: }\ntables:\n  a: {z: READ (a), y: READ (a)}\n  b: {x: READ (b)}\ncore: {w: READ (entity)}\n"
    )
    assert list(policy.rows) == [("b", "x"), ("b", "w"), ("c", "w"), ("a", "z"), ("a", "y"), ("a", "w")]


VARIANTS = """\
tables:
  shop: {open: READ (shop), close: READ (shop)}
core: {look: READ (entity)}
roles: {boss: {grants: {shop: [READ]}}, clerk: {grants: {shelf: [READ]}}}
variants:
  strict:
    tables: {shop: {open: READ + WRITE (shop)}, item: {sell: WRITE (item)}}
    core: {look: WRITE (entity)}
    roles: {boss: {grants: {shop: [READ, WRITE]}}}
"""


def test_a_variant_replaces_rows_and_roles_of_the_same_name(resolve: Resolve) -> None:
    base, strict = resolve(VARIANTS), resolve(VARIANTS, variant="strict")
    assert (base.variant, base.variants, strict.variant) == (None, ("strict",), "strict")
    assert text(base, "shop", "open")[0] == "READ (shop)"
    assert text(strict, "shop", "open")[0] == "READ + WRITE (shop)"
    assert text(strict, "shop", "close")[0] == "READ (shop)"
    assert ("item", "sell") in strict.rows
    assert ("item", "sell") not in base.rows
    assert text(strict, "user", "look")[0] == "WRITE (entity)"
    assert base.roles["boss"].grants == (("shop", ("READ",)),)
    assert strict.roles["boss"].grants == (("shop", ("READ", "WRITE")),)
    assert strict.roles["clerk"] == base.roles["clerk"]


READINGS = """\
tables:
  shop:
    list: {each: READ (shop), ambiguous: {readings: {all: anyone, strict: {requires: WRITE (shop), each: WRITE (shop)}}}}
    open: {requires: READ (shop), each: WRITE (shop), ambiguous: {readings: {other: WRITE (shop)}}}
    make: {requires: READ (shop), grants: READ (shop), ambiguous: {readings: {more: {grants: READ + WRITE (shop)}}}}
"""


def test_readings_are_offered_by_row(resolve: Resolve) -> None:
    policy = resolve(READINGS)
    assert policy.readings == {"shop/list": ("all", "strict"), "shop/open": ("other",), "shop/make": ("more",)}
    assert text(policy, "shop", "list") == (None, "READ (shop)")


@pytest.mark.parametrize(
    ("row", "reading", "expected"),
    [
        ("list", "all", (None, "anyone")),
        ("list", "strict", ("WRITE (shop)", "WRITE (shop)")),
        ("open", "other", ("WRITE (shop)", "WRITE (shop)")),
        ("make", "more", ("READ (shop)", None)),
    ],
)
def test_a_reading_stands_in_place_of_the_row_s_words(
    resolve: Resolve, row: str, reading: str, expected: tuple[str | None, str | None]
) -> None:
    policy = resolve(READINGS, readings={f"shop/{row}": reading})
    assert text(policy, "shop", row) == expected
    assert policy.chosen == {f"shop/{row}": reading}


def test_a_reading_may_change_effects(resolve: Resolve) -> None:
    assert len(resolve(READINGS).rows["shop", "make"].outcomes) == 1
    assert len(resolve(READINGS, readings={"shop/make": "more"}).rows["shop", "make"].outcomes) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "strcit"}, "the policy has no variant `strcit`; did you mean `strict`?"),
        ({"readings": {"shop/opne": "x"}}, "no row `shop/opne`; did you mean `shop/open`?"),
        ({"readings": {"open": "x"}}, "no row `open`"),
        ({"readings": {"shop/open": "x"}}, "the row `shop/open` has no reading `x`; it is not ambiguous"),
    ],
)
def test_an_unknown_selection_is_bad_usage(resolve: Resolve, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(VARIANTS, **options)
    assert message in str(error.value)


def test_a_misspelt_reading_gets_a_hint(resolve: Resolve) -> None:
    with pytest.raises(UsageError, match="has no reading `strikt`; did you mean `strict`"):
        resolve(READINGS, readings={"shop/list": "strikt"})


SHARED = """\
any: {look: {for: [shelf, item], requires: READ (entity), ambiguous: {readings: {more: WRITE (entity), none: anyone}}}}
core: {open: {requires: READ (entity), ambiguous: {readings: {more: WRITE (entity)}}}}
tables: {item: {open: READ (item)}}
"""


def test_a_shared_row_is_read_otherwise_for_all_its_types_at_once(resolve: Resolve) -> None:
    policy = resolve(SHARED, readings={"any/look": "more", "core/open": "more"})
    assert {text(policy, type_, "look")[0] for type_ in ("shelf", "item")} == {"WRITE (entity)"}
    assert {type_ for type_, op in policy.rows if op == "open" and text(policy, type_, op)[0] == "WRITE (entity)"} == {
        *policy.entities
    } - {"item"}


@pytest.mark.parametrize("turn", [1, -1])
def test_a_reading_of_one_type_takes_precedence(resolve: Resolve, turn: int) -> None:
    readings = dict([("item/look", "none"), ("any/look", "more")][::turn])
    policy = resolve(SHARED, readings=readings)
    assert text(policy, "item", "look")[0] == "anyone"
    assert text(policy, "shelf", "look")[0] == "WRITE (entity)"


def test_a_reading_that_a_shared_row_does_not_have(resolve: Resolve) -> None:
    with pytest.raises(UsageError, match="the row `any/look` has no reading `mroe`; did you mean `more`"):
        resolve(SHARED, readings={"any/look": "mroe"})
    with pytest.raises(UsageError, match="no row `any/open`"):
        resolve(SHARED, readings={"any/open": "more"})
