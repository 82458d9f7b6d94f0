from __future__ import annotations

from privtab.analysis.diff import Diff, diff
from privtab.analysis.diff.renames import recognise
from privtab.ir.nodes import Program
from privtab.pipeline import program_of
from privtab.source import SourceFile

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
    return program_of(SourceFile.of("shop.yaml", text))


def compared(new: str) -> Diff:
    return diff(program(OLD), program(new))


def verdicts(found: Diff) -> dict[str, str]:
    return {r.name: str(r.verdict) for r in found.changes}


def test_nothing_is_renamed_where_names_stay() -> None:
    assert not recognise(program(OLD), program(OLD)).names


def test_an_operation() -> None:
    found = compared(OLD.replace("fill:", "stock:"))
    assert verdicts(found) == {"shelf/stock": "renamed"}
    (row,) = found.changes
    assert row.was == ("shelf", "fill")
    assert row.recognised == "the same condition and effects"


def test_an_operation_that_others_refer_to() -> None:
    found = compared(OLD.replace("    open:", "    look:").replace("can open", "can look"))
    assert verdicts(found) == {"shelf/look": "renamed"}
    assert found.rewritten == ()


def test_of_several_operations_that_fit_the_nearest_name_wins() -> None:
    found = compared(OLD.replace("    read: READ (item)\n", "    peek: READ (item)\n    reads: READ (item)\n"))
    assert verdicts(found) == {"item/reads": "renamed", "item/peek": "added"}


def test_another_condition_is_another_operation() -> None:
    found = compared(OLD.replace("    read: READ (item)", "    reads: READ + WRITE (item)"))
    assert verdicts(found) == {"item/reads": "added", "item/read": "removed"}


def test_an_entity_type() -> None:
    found = compared(OLD.replace("shelf", "rack"))
    assert verdicts(found) == {"rack/open": "renamed", "rack/fill": "renamed", "rack/drop": "renamed"}
    (declared,) = found.declared
    assert (declared.kind, declared.was, declared.name) == ("type", "shelf", "rack")
    assert declared.recognised == "3 of 3 rows the same"


def test_an_entity_type_and_a_change_in_it() -> None:
    found = compared(OLD.replace("WRITE (shelf)", "READ (shelf)").replace("shelf", "rack"))
    assert verdicts(found)["rack/drop"] == "incomparable"
    assert verdicts(found)["rack/open"] == "renamed"


def test_a_privilege() -> None:
    found = compared(OLD.replace("PUT", "STOCK"))
    assert verdicts(found) == {}
    (declared,) = found.declared
    assert (declared.kind, declared.was, declared.name) == ("privilege", "PUT", "STOCK")
    assert declared.recognised == "4 of 4 places that name it the same"


def test_everything_at_once() -> None:
    new = OLD.replace("PUT", "STOCK").replace("shelf", "rack").replace("fill:", "stock:")
    assert set(verdicts(compared(new)).values()) == {"renamed"}


def test_a_privilege_whose_old_name_stays_as_an_alias() -> None:
    new = OLD.replace("PUT", "STOCK").replace(
        "[READ, WRITE, STOCK]", "{READ: , WRITE: , STOCK: , PUT: {alias_of: STOCK}}"
    )
    found = compared(new)
    assert verdicts(found) == {}
    assert [(d.kind, d.name) for d in found.declared] == [("privilege", "STOCK")]


def test_a_name_that_is_taken_again_is_not_renamed() -> None:
    new = OLD.replace("read: READ (item)", "read: WRITE (item)\n    look: READ (item)")
    assert verdicts(compared(new)) == {"item/read": "incomparable", "item/look": "added"}


def test_without_recognition_names_are_what_they_are() -> None:
    found = diff(program(OLD), program(OLD.replace("fill:", "stock:")), renames=False)
    assert verdicts(found) == {"shelf/stock": "added", "shelf/fill": "removed"}
    names = diff(program(OLD), program(OLD.replace("PUT", "STOCK")), renames=False)
    assert verdicts(names)["shelf/fill"] == "incomparable"


def test_the_order_of_rows_changes_nothing() -> None:
    body = OLD.split("tables:\n")
    shelf, item = body[1].split("  item:\n")
    turned = f"{body[0]}tables:\n  item:\n{item}{shelf}"
    new = turned.replace("PUT", "STOCK").replace("shelf", "rack").replace("fill:", "stock:")
    assert (
        recognise(program(OLD), program(new)).names
        == recognise(
            program(OLD), program(OLD.replace("PUT", "STOCK").replace("shelf", "rack").replace("fill:", "stock:"))
        ).names
    )
