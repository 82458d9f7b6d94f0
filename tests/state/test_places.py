from __future__ import annotations

from pathlib import Path

from privtab import pipeline
from privtab.state.findings import RowLocation
from privtab.state.load import from_tables, load_raw_state, validate, validate_with_places
from privtab.state.names import Places

STATE = """\
members:
  - {user: ann, of: "metalake:m"}
  - {user: ben, of: "metalike:m"}
  - {user: ann, of: "metalake:m"}
  - {user: cem, of: "metalake:m"}
"""


def test_each_good_row_knows_its_line_whatever_was_left_out(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    path.write_text(STATE, encoding="utf-8")
    program = pipeline.load_program("gravitino/1.1.0")
    state, places, findings = validate_with_places(program, load_raw_state(path))
    assert [user for user, _ in state.members] == ["ann", "cem"]
    assert [RowLocation.text_of(places.of("members", n)) for n in range(3)] == [f"{path}:2", f"{path}:5", ""]
    assert (state, findings) == validate(program, load_raw_state(path))


def test_a_row_without_a_line_is_named_by_its_number() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    raw = from_tables({"members": [{"user": "ann", "of": "metalake:m"}]}, "state.json")
    _, places, _ = validate_with_places(program, raw)
    assert places.of("members", 0) == RowLocation(path="state.json", table="members", row=1)
    assert RowLocation.text_of(places.of("members", 0)) == "state.json: members row 1"
    assert Places.NONE.of("members", 0) is None
