"""The rows about a principal that is an entity, where the state says what contains it."""

from __future__ import annotations

import pytest

from privtab.base import Entity, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Assignment, Grant, Placement, State
from privtab_analysis.principal_rows import about_principal

POLICY = """
privtab: 1
system: drives
version: "1"
entities: {drive: {folder: {account: , document: {comment: }}}}
types:
  folder: {nested: true, flat: true}
  account: {principal: user, flat: true}
  document: {flat: true}
privileges: [READ]
semantics: {inheritance: down, owner: {kinds: [user]}}
tables:
  account: {remove: {requires: READ (folder), revokes: [grants, owners, assignments]}}
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("drives.yaml", POLICY))


def placed(entity: str, parent: str) -> Placement:
    return Placement(entity=Entity.parse(entity), parent=Entity.parse(parent))


PLACES = (
    placed("folder:f1", "drive:main"),
    placed("folder:f2", "folder:f1"),
    placed("folder:f3", "drive:main"),
    placed("document:d2", "folder:f2"),
    placed("document:d3", "folder:f3"),
    placed("account:ann", "folder:f1"),
)


def granted(*entities: str) -> tuple[Grant, ...]:
    return tuple(
        Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity.parse(entity)) for entity in entities
    )


def test_rows_on_what_lies_in_the_same_container_are_removed(program: Program) -> None:
    inside = granted("folder:f1", "folder:f2", "document:d2", "comment:d2/c")
    state = State(
        grants=(*granted("drive:main", "folder:f3", "document:d3", "document:d9"), *inside),
        owners=((Entity("document", "d2"), "user:ann"), (Entity("document", "d3"), "user:ann")),
        assignments=(
            Assignment(principal="user:ann", role="reader"),
            Assignment(principal="user:ann", role="reader", scope=Entity("folder", "f3")),
        ),
        entities=PLACES,
    )
    ann = Entity("account", "ann")
    assert about_principal(state, "grants", ann, program) == State(grants=inside)
    assert about_principal(state, "owners", ann, program) == State(owners=state.owners[:1])
    assert about_principal(state, "assignments", ann, program) == State(assignments=state.assignments[:1])


def test_a_principal_that_lies_nowhere_takes_nothing_along(program: Program) -> None:
    state = State(grants=granted("folder:f1"), entities=PLACES[:1])
    assert about_principal(state, "grants", Entity("account", "ann"), program) == State()


def test_ids_that_are_paths_say_what_contains_them() -> None:
    text = POLICY.replace(", flat: true", "").replace("flat: true", "")
    program = load_program(SourceFile.of("drives.yaml", text))
    inside = granted("folder:m/f1", "folder:m/f1/f2", "document:m/f1/f2/d", "comment:m/f1/d/c")
    state = State(grants=(*granted("drive:m", "folder:m/f3", "folder:m/f11"), *inside))
    assert about_principal(state, "grants", Entity("account", "m/f1/ann"), program) == State(grants=inside)
