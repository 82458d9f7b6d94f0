from __future__ import annotations

from privtab import pipeline
from privtab.ir.formula import move_to_slot, reached_atoms, references
from privtab.ir.nodes import ALWAYS, NEVER, And, Has, Or, Owner, Target
from privtab.ir.shapes import rule_flags

ON = Target(slot="", type="table")
READ, WRITE = (Has(privilege=p, target=ON) for p in ("READ", "WRITE"))


def test_conjunctions_and_alternatives_are_flat_and_say_each_part_once() -> None:
    assert And.of(READ, And(parts=(WRITE, READ))) == And(parts=(READ, WRITE))
    assert And.of(READ, ALWAYS) == READ
    assert And.of() == ALWAYS
    assert Or.of(READ, Or(parts=(WRITE, READ))) == Or(parts=(READ, WRITE))
    assert Or.of(READ, ALWAYS) == ALWAYS
    assert Or.of() == NEVER


def test_moving_takes_the_resource_alone_to_the_slot() -> None:
    other = Owner(target=Target(slot="beside", type="table"))
    moved = move_to_slot(And(parts=(READ, other)), "to")
    assert moved == And(parts=(Has(privilege="READ", target=Target(slot="to", type="table")), other))


def test_leaves_reach_through_references() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    load = program.rules["table", "load"].requires
    assert [c.target.type for c in references(load)] == ["schema"]
    kinds = {atom.privilege for atom in reached_atoms(program, load) if isinstance(atom, Has)}
    assert kinds == {"USE_CATALOG", "USE_SCHEMA", "SELECT_TABLE", "MODIFY_TABLE"}


def test_a_single_type_is_found_at_its_nearest_ancestor_with_a_name() -> None:
    program = pipeline.load_program("streams/teracloud")
    assert program.anchor(Target(slot="", type="jobs_override")) == (1, "jobs_override")
    assert program.anchor(Target(slot="", type="job_group")) == (3, None)


def test_flags_of_a_rule_are_sorted_and_found_through_references() -> None:
    program = pipeline.load_program("streams/teracloud")
    assert rule_flags(program, program.rules["job_group", "submit"]) == ("override",)
    assert rule_flags(program, program.rules["domain", "start"]) == ()
