"""Driver documents: every mistake is reported at its place, all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privtab.base import Entity, PolicyInvalid
from privtab.command._app import run
from privtab.pipeline import load_program
from privtab_testing.conform.document import load
from privtab_testing.conform.documented import SystemNames

POLICY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ, WRITE]
tables:
  page:
    read: READ (page)
    delete: WRITE (folder)
"""


def findings(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "library.yaml").write_text(POLICY, encoding="utf-8")
    path = tmp_path / "driver.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(path, load_program(tmp_path / "library.yaml"))
    return [f"{d.span.line}: {d.message}" + (f" ({d.help})" if d.help else "") for d in caught.value.diagnostics]


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = """\
conform: 1
title: Library
sql:
  database: shelf
  entities:
    pages: {make: create, drop: drop}
  rows:
    grant: {page: grant}
  operations:
    page:
      reed: select 1
      delete: {sql: delete, chages: true}
"""
    assert findings(tmp_path, text) == [
        "4: unknown type `shelf` (types: `folder` and `page`)",
        "6: unknown key `pages` in `entities` (did you mean `page`?)",
        "8: unknown key `grant` in `rows` (did you mean `grants`?)",
        "11: unknown operation `reed` on `page` (did you mean `read`?)",
        "12: unknown key `chages` in an operation (did you mean `changes`?)",
    ]


IN_A_FILE = """\
conform: 1
title: Library
sql:
  {entities: {folder: {make: []}, page: {make: []}}, operations: {page: {read: select 1}},
   state: {grants: [{grantee: "user:root", effect: allow, privilege: READ, entity: "folder:f"}]}"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conform: 2\ntitle: x\nsql: {operations: {page: {read: a}}}\n", "1: `conform` is `2`"),
        ("conform: 1\ntitle: x\n", "either `sql` or `http`"),
        ("conform: 1\ntitle: x\nsql: {quote: '`'}\n", "`operations` is missing in `sql`"),
        (f"{IN_A_FILE}, users: {{make: a}}}}\n", "`users` makes a state by calls"),
        (IN_A_FILE.replace("READ", "REED") + "}\n", "REED"),
        ("conform: 1\ntitle: x\nhttp: {operations: {page: {read: {path: /a}}}}\n", "unknown key `path`"),
        ("conform: 1\ntitle: x\nhttp: {operations: {page: {read: {get: /a, put: /b}}}}\n", "a request has one of"),
    ],
)
def test_a_wrong_document_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert any(says in finding for finding in findings(tmp_path, text))


NESTED = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: true}}
privileges: [READ]
tables: {table: {load: READ (table)}, namespace: {list: READ (namespace)}}
"""
DOCUMENT = "conform: 1\ntitle: Lake\nhttp: {%soperations: {table: {load: {get: '/{catalog}/{namespace}/{table}'}}}}\n"


@pytest.mark.parametrize(("key", "separator"), [("", "/"), ('separator: "\\x1F", ', "\x1f")])
def test_the_levels_of_a_type_that_nests_are_one_text(tmp_path: Path, key: str, separator: str) -> None:
    (tmp_path / "lake.yaml").write_text(NESTED, encoding="utf-8")
    (tmp_path / "driver.yaml").write_text(DOCUMENT % key, encoding="utf-8")
    program = load_program(tmp_path / "lake.yaml")
    document = load(tmp_path / "driver.yaml", program)
    values = SystemNames(program, document, lambda name: name).entity(Entity.parse("table:c/a/b%2Fb/t"))
    assert values == {"catalog": "c", "namespace": f"a{separator}b/b", "namespace_name": "b/b", "table": "t"}
    call = document.operations["table", "load"].calls[0]
    assert call.text.address(values) == f"/c/a{'%2F' if separator == '/' else '%1F'}b%2Fb/t"


def test_a_state_in_a_file_has_the_rows_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "library.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "driver.yaml").write_text(IN_A_FILE + "}\n", encoding="utf-8")
    options = ["--driver", str(tmp_path / "driver.yaml"), "--url", "sqlite://", "--write-state"]
    assert run(["conform", str(tmp_path / "library.yaml"), *options, str(tmp_path / "state.json")]) == 0
    grantees = {row["grantee"] for row in json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))["grants"]}
    assert "user:root" in grantees
    assert len(grantees) > 1
    assert "rows" in capsys.readouterr().out
