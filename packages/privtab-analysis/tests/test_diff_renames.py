from __future__ import annotations

import pytest

from privtab.base import SourceFile, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_analysis.diff import Diff, diff
from privtab_analysis.diff.renames import check_renames, declared_renames

OLD = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: {item: }}}
privileges: [READ, WRITE, PUT]
sets: {BOTH: [READ, PUT]}
tables:
  shelf:
    open: READ (shelf)
    fill: PUT (shelf) and can open (shelf)
    drop: {requires: WRITE (shelf), revokes: BOTH (shelf)}
  item:
    read: READ (item)
    move: {with: {to: shelf}, requires: WRITE (item) and PUT (to)}
"""


def program(text: str) -> Program:
    return load_program(SourceFile.of("shop.yaml", text))


def compared(new: str, **renames: str) -> Diff:
    return diff(program(OLD), program(new), renames={old.replace("__", "/"): name for old, name in renames.items()})


def verdicts(found: Diff) -> dict[str, str]:
    return {r.name: str(r.verdict) for r in found.changes}


def test_names_are_what_they_are_unless_somebody_says_otherwise() -> None:
    assert not declared_renames(program(OLD), program(OLD)).names
    assert verdicts(compared(OLD.replace("fill:", "stock:"))) == {"shelf/stock": "added", "shelf/fill": "removed"}
    assert verdicts(compared(OLD.replace("PUT", "STOCK")))["shelf/fill"] == "incomparable"


def test_an_operation() -> None:
    new = OLD.replace(
        "fill: PUT (shelf) and can open (shelf)",
        "stock: {requires: PUT (shelf) and can open (shelf), renamed_from: fill}",
    )
    for found, reason in (
        (compared(new), "`renamed_from` says so"),
        (compared(OLD.replace("fill:", "stock:"), shelf__fill="shelf/stock"), "`--rename` says so"),
        (compared(OLD.replace("fill:", "stock:"), shelf__fill="stock"), "`--rename` says so"),
    ):
        assert verdicts(found) == {"shelf/stock": "renamed"}
        (row,) = found.changes
        assert (row.was, row.recognised) == (("shelf", "fill"), reason)


def test_an_operation_that_others_refer_to() -> None:
    new = OLD.replace("open: READ (shelf)", "look: {requires: READ (shelf), renamed_from: open}").replace(
        "can open", "can look"
    )
    assert verdicts(compared(new)) == {"shelf/look": "renamed"}
    assert compared(new).rewritten == ()


def test_another_condition_under_another_name() -> None:
    new = OLD.replace("read: READ (item)", "reads: {requires: READ + WRITE (item), renamed_from: read}")
    assert verdicts(compared(new)) == {"item/reads": "narrower"}


def test_an_entity_type() -> None:
    new = OLD.replace("shelf", "rack")
    said = new.replace("privileges:", "types: {rack: {renamed_from: shelf}}\nprivileges:")
    for found in (compared(said), compared(new, shelf="rack")):
        assert verdicts(found) == {"rack/open": "renamed", "rack/fill": "renamed", "rack/drop": "renamed"}
        (declared,) = found.declared
        assert (declared.kind, declared.was, declared.name) == ("type", "shelf", "rack")


def test_an_entity_type_and_a_change_in_it() -> None:
    found = compared(OLD.replace("WRITE (shelf)", "READ (shelf)").replace("shelf", "rack"), shelf="rack")
    assert verdicts(found)["rack/drop"] == "incomparable"
    assert verdicts(found)["rack/open"] == "renamed"


def test_a_privilege() -> None:
    new = OLD.replace("PUT", "STOCK")
    said = new.replace("[READ, WRITE, STOCK]", "{READ: , WRITE: , STOCK: {renamed_from: PUT}}")
    for found in (compared(said), compared(new, PUT="STOCK")):
        assert verdicts(found) == {}
        (declared,) = found.declared
        assert (declared.kind, declared.was, declared.name) == ("privilege", "PUT", "STOCK")


def test_everything_at_once() -> None:
    new = OLD.replace("PUT", "STOCK").replace("shelf", "rack").replace("fill:", "stock:")
    found = compared(new, PUT="STOCK", shelf="rack", shelf__fill="rack/stock")
    assert set(verdicts(found).values()) == {"renamed"}


def test_a_privilege_whose_old_name_stays_as_an_alias() -> None:
    new = OLD.replace("PUT", "STOCK").replace(
        "[READ, WRITE, STOCK]", "{READ: , WRITE: , STOCK: , PUT: {alias_of: STOCK}}"
    )
    found = compared(new)
    assert verdicts(found) == {}
    assert [(d.kind, d.name) for d in found.declared] == [("privilege", "STOCK")]


def test_a_name_that_is_taken_again_is_not_renamed() -> None:
    new = OLD.replace("read: READ (item)", "read: WRITE (item)\n    look: {requires: READ (item), renamed_from: read}")
    assert verdicts(compared(new)) == {"item/read": "incomparable", "item/look": "added"}


def test_what_renames_nothing_is_an_error() -> None:
    pairs = [(program(OLD), program(OLD.replace("PUT", "STOCK")))]
    check_renames({"PUT": "STOCK"}, pairs)
    for renames, message in (
        ({"PUTT": "STOCK"}, "before has a type, a privilege or an operation `PUTT`; did you mean `PUT`"),
        ({"PUT": "STOK"}, "after has a type, a privilege or an operation `STOK`; did you mean `STOCK`"),
    ):
        with pytest.raises(UsageError, match=message):
            check_renames(renames, pairs)
