"""Moving an entity is one row of the state, and few entries of its index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from privtab import pipeline
from privtab.base.request import Entity, Request
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, Placement, State

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document:}}}
types: {folder: {nested: true, flat: true}, document: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
tables: {document: {read: READ (document)}}
"""


def placed(entity: str, parent: str) -> Placement:
    return Placement(entity=Entity.parse(entity), parent=Entity.parse(parent))


def test_moving_a_folder_moves_all_that_lies_in_it(tmp_path: Path) -> None:
    path = tmp_path / "drives.yaml"
    path.write_text(POLICY, encoding="utf-8")
    program = pipeline.load_program(path)
    documents = tuple(placed(f"document:d{number}", "folder:team") for number in range(50))
    places = (placed("folder:eu", "drive:main"), placed("folder:us", "drive:main"), placed("folder:team", "folder:eu"))
    grants = tuple(
        Grant(grantee=f"user:{user}", effect="allow", privilege="READ", entity=Entity.parse(f"folder:{folder}"))
        for user, folder in (("ann", "eu"), ("bob", "us"), ("cy", "team"))
    )
    before = State(entities=(*places, *documents), grants=grants)
    after = replace(before, entities=(*places[:2], placed("folder:team", "folder:us"), *documents))

    def readers(state: State) -> list[str]:
        reference = Reference(program, state)
        return [
            user
            for user in ("ann", "bob", "cy")
            if reference.decide(Request(user=user, action="read", resource=Entity("document", "d7"))).allowed
        ]

    assert readers(before) == ["ann", "cy"]
    assert readers(after) == ["bob", "cy"]
    old, new = index_document(program, before), index_document(program, after)
    assert {part for part in new if old[part] != new[part]} == {"places", "containers", "revision"}
    changed = {
        part: [key for key in new[part] if old[part].get(key) != new[part][key]] for part in ("places", "containers")
    }
    assert changed == {"places": ["folder:team"], "containers": ["folder:team", "folder:us"]}
