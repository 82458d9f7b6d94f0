"""Ways as they are written: atoms, sets, names, products; and what is wrong with them."""

from __future__ import annotations

import pytest
from shop_policy import Reads, Refuses


def sets(reads: Reads, text: str, let: str = "") -> list[str]:
    """The sets of one entry: those that the callers who hold just one of them have."""
    plan = reads(f"{let}\nneeds: [{{ask: read item:s/a/x, {text}}}]")
    return [
        case.name.partition(" with ")[2] for case in plan.cases if case.expected.allowed and "; denied" not in case.name
    ]


def test_one_atom_may_name_several(reads: Reads) -> None:
    assert sets(reads, "by: [[READ/WRITE (item:s/a/x)]]") == ["READ (item:s/a/x)", "WRITE (item:s/a/x)"]
    assert sets(reads, 'by: ["owner (shelf:s/a, item:s/a/x)"]'.replace("[", "[[", 1).replace("]", "]]")) == [
        "owner (shelf:s/a)",
        "owner (item:s/a/x)",
    ]


def test_a_set_of_privileges_is_all_its_members(reads: Reads) -> None:
    assert sets(reads, "by: [[ALL (item:s/a/x)]]") == ["READ (item:s/a/x), WRITE (item:s/a/x)"]


def test_a_product_keeps_the_smallest_sets(reads: Reads) -> None:
    let = "let: {a: [[READ (store:s)], [owner (store:s)]], b: {any: [owner (store:s), OWN (item:s/a/x)]}}"
    assert sets(reads, "all: [a, b]", let) == [
        "OWN (item:s/a/x), READ (store:s)",
        "owner (store:s)",
    ]


def test_names_may_name_names(reads: Reads) -> None:
    let = "let: {a: b, b: [[self]], c: {all: [a, service admin]}}"
    assert sets(reads, "by: c", let) == ["self, service admin"]


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("by: [[RAED (item:s/a/x)]]", "T104", "unknown privilege `RAED`"),
        ("by: [[READ (itm:s/a/x)]]", "T104", "unknown entity type `itm`"),
        ("by: [[READ (item:s/a)]]", "T104", "wrong depth: `item:s/a` has 2 names, a `item` path has 3"),
        ("by: [[READ]]", "T104", "`READ` is not an atom"),
        ("by: [READ (item:s/a/x)]", "T003", "a set is a list of atoms"),
        ("by: nowhere", "T105", "`nowhere` is neither an atom nor a name of `let`"),
        ("by: round", "T107", "`square` is said by means of itself"),
        ("by: {both: []}", "T001", "unknown key `both` in a way"),
        ("by: {all: [[[self]]], any: [[[self]]]}", "T006", "a way has either `all` or `any`"),
        ("by: [[self]], all: [self]", "T006", "an entry of `needs` has either `by` or `all`"),
        ("why: nothing", "T006", "an entry of `needs` has either `by` or `all`"),
        ("by: [[self], [self, service admin]]", "T201", "self, service admin is not a minimal set"),
        ("by: [[self], [self]]", "T201", "self occurs twice"),
        ("by: [[~]]", "T003", "an atom is empty, not text"),
    ],
)
def test_mistakes_are_reported_where_they_stand(refuses: Refuses, entry: str, code: str, message: str) -> None:
    text = f"let: {{round: square, square: {{all: [square]}}}}\nneeds:\n  - {{ask: read item:s/a/x, {entry}}}"
    [found, *_] = refuses(text)
    assert (found.code, found.message) == (code, message)
    assert found.span.line in {2, 4}


@pytest.mark.parametrize(
    "entry",
    [
        f"all: [{', '.join(['READ/OWN (item:s/a/x)'] * 12)}]",
        f"by: {{all: [{', '.join(['READ/OWN (item:s/a/x)'] * 12)}]}}",
        f"by: [[{', '.join(['READ/OWN (item:s/a/x)'] * 12)}]]",
        f"by: [{', '.join(f'[READ (item:s/a/x{i})]' for i in range(2_001))}]",
    ],
    ids=["all", "a way of all", "a set of alternatives", "a list"],
)
def test_sets_that_expand_to_too_many_ways_are_refused(refuses: Refuses, entry: str) -> None:
    [found] = refuses(f"needs:\n  - {{ask: read item:s/a/x, {entry}}}")
    assert (found.code, found.message) == ("T205", "this expands to more than 2,000 ways")


def test_advice_is_computed(refuses: Refuses) -> None:
    text = "needs: [{ask: read item:s/a/x, by: [[RAED (item:s/a/x), self], [self, service admin]]}]"
    [found] = refuses(text)
    assert found.help == "did you mean `READ`?"
    [found] = refuses("needs: [{ask: read item:s/a/x, by: [[self, service admin], [self]]}]")
    assert found.help == "self is enough"
