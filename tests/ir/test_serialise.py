from __future__ import annotations

import json

import pytest

from privtab import pipeline
from privtab.ir.canonical import canonical_form
from privtab.ir.passes import flatten
from privtab.ir.serialise import formula_json, program_json, variant_key

NAMES = ("cdap/final", "gravitino/1.1.0", "streams/teracloud")


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_its_minimal_sets(name: str) -> None:
    program = pipeline.load_program(name)
    document = json.loads(json.dumps(program_json(program)))
    for (entity, operation), rule in program.rules.items():
        written = document["rules"][entity][operation]
        types = {w.name: w.types[0] for w in rule.withs}
        key = variant_key((), {w.name: w.types[0] for w in rule.withs if w.polymorphic})
        assert len(written["minimal"]["item"][key]) == len(
            canonical_form(program).minimal_sets(rule.item_condition, types=types)
        )
        assert bool(written["minimal"]["call"]) == rule.unnamed
        used = {i for form in written["minimal"].values() for sets in form.values() for row in sets for i in row}
        assert used == set(range(len(written["atoms"])))


def test_flags_and_types_have_a_variant_each() -> None:
    program = pipeline.load_program("streams/teracloud")
    submit = program_json(program)["rules"]["job_group"]["submit"]
    assert submit["flags"] == ["override"]
    assert set(submit["minimal"]["item"]) == {"", "override"}
    tags = program_json(pipeline.load_program("gravitino/1.1.0"))["rules"]["tag"]["associate"]
    assert "object=table" in tags["minimal"]["item"]


def test_a_formula_names_its_nodes() -> None:
    program = flatten(pipeline.load_program("gravitino/1.1.0"))
    assert formula_json(program.rules["catalog", "load"].requires) == {
        "or": [
            {"owner": {"slot": "", "type": "metalake"}},
            {"owner": {"slot": "", "type": "catalog"}},
            {"has": {"privilege": "USE_CATALOG", "slot": "", "type": "catalog"}},
        ]
    }


def test_what_is_not_declared_is_not_written() -> None:
    program = pipeline.load_program("cdap/final")
    declared = {
        (operation, name)
        for rules in program_json(program)["rules"].values()
        for operation, rule in rules.items()
        for name in ("destructive", "sensitive")
        if name in rule
    }
    words = ("delete", "delete_all", "delete_property", "drop", "truncate")
    assert declared == {(word, name) for word in words for name in ("destructive", "sensitive")}
