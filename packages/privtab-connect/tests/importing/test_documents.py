"""Import documents are read with every mistake at its place, and the shipped ones are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from documentation_pages import read

from privtab.base import PolicyInvalid, UsageError
from privtab_connect.documents import documents
from privtab_connect.importing.document import load


@pytest.mark.parametrize("name", documents("import"))
def test_a_shipped_document_is_right(name: str) -> None:
    document = load(name)
    assert document.title
    assert document.steps


def test_the_example_of_the_page_is_right(tmp_path: Path) -> None:
    (example,) = (block for block in read("docs/reference/importing.md").blocks if block.text.startswith("import: 1"))
    path = tmp_path / "groups.yaml"
    path.write_text(example.text, encoding="utf-8")
    assert load(str(path)).needs == ("tenant",)


WRONG = """\
import: 1
title: Wrong
takes: [x]
steps:
  - get: /a
    sql: select 1
  - get: /b
    fields: {users: [{name: knwon}]}
    each: "users[.name"
    rows: {grant: {user: x}, owners: {entity: "a:{x}", ownr: y}}
  - sql: select 1
    page: {parameter: p, next: n}
  - gett: /c
  - get: /d
    not_taken: {each: "@", why: x}
  - get: /e
    fields: {users: known}
    page: {parameter: p, items: users}
"""


def test_every_mistake_is_found_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(str(path))
    found = {(finding.span.line, finding.message.partition(":")[0]) for finding in caught.value.diagnostics}
    assert found == {
        (6, "a step has either `get` or `sql`"),
        (8, "`name` is `knwon`"),
        (9, "`users[.name` is not a JMESPath expression"),
        (10, "unknown key `grant` in `rows`"),
        (10, "unknown key `ownr` in a row of `owners`"),
        (11, "`fields` is missing in a `sql`"),
        (12, "only the answer to a `get` comes in pages"),
        (13, "unknown key `gett` in a step"),
        (14, "`fields` is missing in a `get`"),
        (15, "`name` is missing in `not_taken`"),
        (18, "`page` needs `next`, or `items` with `total`"),
    }
    helps = {finding.help for finding in caught.value.diagnostics}
    assert {"did you mean `grants`?", "did you mean `owner`?", "did you mean `get`?"} <= helps


def test_an_unknown_document_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean `ranger`"):
        load("rangr")
