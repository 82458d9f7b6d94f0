"""The faults that a row can have: every kind of them, each once, in words."""

from __future__ import annotations

from shop_policy import Reads

from privtab_testing.scenarios.mutants import Mutants

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: {item: }}}
privileges: [READ, WRITE, {name: OWN}]
semantics: {inheritance: down, owner: {kinds: [user]}, gate: member (store)}
tables:
  store:
    open: READ (store)
  shelf:
    open: READ (shelf)
    create: {requires: WRITE (store), grants: READ (shelf), becomes: owner}
    list: {each: READ/WRITE (shelf)}
    show: {each: READ (shelf)}
    burn: READ (shelf) and (WRITE (shelf) when really)
  item:
    open: can open (shelf) and owner (item)
    put: {with: {on: [shelf, item]}, requires: READ (on)}
"""
POLICY = POLICY.replace("[READ, WRITE, {name: OWN}]", "[READ, WRITE, OWN]")


def texts(reads: Reads, type_: str, operation: str) -> dict[str, list[str]]:
    program = reads("needs: [{ask: open store:s, by: [[member (store:s), READ (store:s)]]}]", POLICY).program
    found: dict[str, list[str]] = {}
    for mutant in Mutants(program).of(program.rules[type_, operation]):
        found.setdefault(mutant.change, []).append(mutant.text)
    return found


def test_one_atom(reads: Reads) -> None:
    assert texts(reads, "shelf", "open") == {
        "drop": ["without `READ (shelf)`: anyone may"],
        "privilege": ["`WRITE (shelf)` for `READ (shelf)`", "`OWN (shelf)` for `READ (shelf)`"],
        "target": ["`READ (store)` for `READ (shelf)`"],
        "gate": ["the gate dropped"],
    }


def test_effects(reads: Reads) -> None:
    assert texts(reads, "shelf", "create")["effect"] == [
        "without `grant READ (shelf)`",
        "`revoke READ (shelf)` for `grant READ (shelf)`",
        "`grant WRITE (shelf)` for `grant READ (shelf)`",
        "`grant OWN (shelf)` for `grant READ (shelf)`",
        "`grant READ (store)` for `grant READ (shelf)`",
        "without `become owner (shelf)`",
        "`revoke owner (shelf)` for `become owner (shelf)`",
        "`become owner (store)` for `become owner (shelf)`",
    ]


def test_created_entities_are_no_targets_of_mutants(reads: Reads) -> None:
    assert "target" not in texts(reads, "shelf", "create")


def test_each_and_alternatives(reads: Reads) -> None:
    found = texts(reads, "shelf", "list")
    assert found["each"] == ["`each` dropped"]
    assert found["any-all"] == ["all for any of `READ (shelf) or WRITE (shelf)`"]
    assert found["drop"] == ["without `READ (shelf)`", "without `WRITE (shelf)`"]
    # OWN is the only privilege that the cell does not speak of.
    assert found["privilege"] == ["`OWN (shelf)` for `READ (shelf)`", "`OWN (shelf)` for `WRITE (shelf)`"]


def test_an_item_that_anyone_may_see_is_one_fault(reads: Reads) -> None:
    found = texts(reads, "shelf", "show")
    assert found["each"] == ["`each` dropped"]
    assert "drop" not in found


def test_flags(reads: Reads) -> None:
    found = texts(reads, "shelf", "burn")
    assert found["flag"] == ["`WRITE (shelf)` always, not only when `really`"]
    assert "without `WRITE (shelf) when really`" in found["drop"]
    assert found["any-all"] == ["any for all of `READ (shelf) and (WRITE (shelf) when really)`"]


def test_references(reads: Reads) -> None:
    found = texts(reads, "item", "open")
    assert "`can open (store)` for `can open (shelf)`" in found["target"]
    # `can open (item)` would ask for itself.
    assert not any("can open (item)" in text for text in found["target"])
    assert "`owner (shelf)` for `owner (item)`" in found["target"]


def test_objects_of_several_types_are_changed_type_by_type(reads: Reads) -> None:
    found = texts(reads, "item", "put")
    assert "never (where `on` is a `shelf`)" in found["drop"]
    assert "always (where `on` is a `item`)" in found["drop"]
    assert len(found["privilege"]) == 4


def test_a_mutant_is_another_rule(reads: Reads) -> None:
    program = reads("needs: [{ask: open store:s, by: [[member (store:s), READ (store:s)]]}]", POLICY).program
    for rule in program.rules.values():
        mutated = [(m.rule.gate, m.rule.requires, m.rule.each, m.rule.effects) for m in Mutants(program).of(rule)]
        assert (rule.gate, rule.requires, rule.each, rule.effects) not in mutated
        assert len(set(mutated)) == len(mutated)
