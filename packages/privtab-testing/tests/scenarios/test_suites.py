"""Suites: a matrix of users, operations and entities."""

from __future__ import annotations

import pytest
from shop_policy import Reads, Refuses, failed

HEAD = """\
state:
  grants:
    - {grantee: "user:ann", effect: allow, privilege: READ, entity: "shelf:s/a"}
    - {grantee: "user:ben", effect: allow, privilege: READ, entity: "store:s"}
suites:
  - name: readers
    users: [ann, ben, eve]
    operations: [read, list, open]
    entities: ["item:s/a/x", "item:s/b/y", "shelf:s/a", "shelf:s/b", "store:s"]
"""


def test_unlisted_operations_must_be_denied(reads: Reads) -> None:
    rest = """\
    allow:
      ann: {read: ["item:s/a/*"]}
      ben: [read, open]
    visible:
      ben: {list: ["shelf:s/a", "shelf:s/b"]}
      "[ae][nv]*": {list: []}
"""
    plan = reads(HEAD + rest)
    # Four operations exist for the items, two for the shelves' listing, one for the store, each for three users.
    assert len(plan.cases) == 3 * (2 + 2 + 1)
    # READ on the shelf shows it, but listing takes READ on the store.
    assert failed(plan) == []


def test_a_cell_that_is_listed_wrongly_fails(reads: Reads) -> None:
    plan = reads(HEAD + "    allow: {ann: {read: ['item:s/b/y']}}\n    deny: {ben: [open]}\n    unlisted: ignore\n")
    assert failed(plan) == ["readers: ann read item:s/b/y", "readers: ben open store:s"]
    assert [case.span.line for case in plan.cases] == [11, 12]


@pytest.mark.parametrize(
    ("rest", "code", "message"),
    [
        ("allow: {joe: [read]}", "T105", "`joe` is not among the users of the suite"),
        ("allow: {ann: [write]}", "T105", "`write` is not among the operations of the suite"),
        ("allow: {ann: {read: ['item:s/a/z']}}", "T105", "`item:s/a/z` is not among the entities of the suite"),
        ("allow: {ann: [read]}\n    deny: {ann: {read: ['item:s/a/x']}}", "T202", "ann read item:s/a/x is both allowed and denied"),
        ("visible: {ann: {open: []}}", "T203", "`open` lists none of the entities"),
        ("unlisted: allow", "T004", "`unlisted` is `allow`"),
    ],
)  # fmt: skip
def test_mistakes_in_a_suite(refuses: Refuses, rest: str, code: str, message: str) -> None:
    [found, *_] = refuses(f"{HEAD}    {rest}\n")
    assert (found.code, found.message) == (code, message)


def test_axes_that_do_not_meet(refuses: Refuses) -> None:
    found = refuses("suites: [{users: [a], operations: [read, fly], entities: ['item:s/a/x', 'store:s', 'shop:s']}]")
    assert [(d.code, d.message) for d in found] == [
        ("T203", "`fly` is not an operation of these entities"),
        ("T203", "no operation of the suite is one of `store:s`"),
        ("T103", "unknown entity type `shop`"),
    ]


def test_all_operations_that_take_what_the_suite_gives(reads: Reads) -> None:
    def requests(more: str, *entities: str) -> list[str]:
        text = f"suites: [{{users: [a], entities: {['item:s/a/x', *entities]}, {more}}}]"
        return [f"{case.request.action} {case.request.resource.type}" for case in reads(text).cases]

    assert sorted(requests('operations: "*"', "store:s")) == ["burn item", "open store", "peek item", "read item"]
    assert requests('operations: ["[a-o]*"], with: {to: "shelf:s/b"}') == ["move item"]
    assert requests('operations: "*", flags: [really]') == ["burn item"]
    assert sorted(requests('operations: [peek, "p*"]')) == ["peek item"]


def test_a_pattern_that_fits_nothing_and_a_name_that_needs_more(refuses: Refuses) -> None:
    [found, *_] = refuses("suites: [{users: [a], operations: 'fly*', entities: ['item:s/a/x']}]")
    assert (found.code, found.message) == ("T203", "`fly*` is not an operation of these entities")
    [found, *_] = refuses("suites: [{users: [a], operations: [move, '*'], entities: ['item:s/a/x']}]")
    assert found.code == "T103"
