from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.names import encode_name, invisible, unusable_character
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.names import RowProblem, StateNames


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("SELECT", ("SELECT",)),
        ("READ", ("SELECT",)),
        ("ALL", ("SELECT", "MODIFY")),
        ("EVERYTHING", ("SELECT", "CREATE_TABLE")),
        ("NOTHING", None),
    ],
)
def test_a_name_stands_for_privileges(program: Program, name: str, members: tuple[str, ...] | None) -> None:
    assert StateNames(program).privileges(name) == members


def test_sets_that_hold_each_other_end(program: Program) -> None:
    circular = replace(program, sets={"A": ("B", "SELECT"), "B": ("A", "MODIFY")})
    assert StateNames(circular).privileges("A") == ("MODIFY", "SELECT")


@given(
    names=st.lists(
        st.text(min_size=1).filter(
            lambda name: name == name.strip() and not (unusable_character(name) or invisible(name))
        ),
        min_size=3,
        max_size=3,
    )
)
def test_every_encoded_name_is_read(program: Program, names: list[str]) -> None:
    path = "/".join(map(encode_name, names))
    assert StateNames(program).entity(f"table:{path}") == Entity("table", path)


@given(path=st.text("ab/%2F5f*?A3"))
def test_a_path_that_is_read_has_one_spelling(program: Program, path: str) -> None:
    found = StateNames(program).entity(f"schema:{path}")
    if isinstance(found, RowProblem):
        assert found.code in {"S112", "S113", "S115"}
        return
    decoded = [
        name.replace("%2A", "*").replace("%3F", "?").replace("%2F", "/").replace("%25", "%") for name in found.names
    ]
    assert len(decoded) == 2
    assert "/".join(map(encode_name, decoded)) == path


@pytest.mark.parametrize(
    ("type_", "shape"),
    [("lake", "lake:lake"), ("table", "table:lake/schema/table"), ("settings", "settings:lake/schema")],
)
def test_a_shape_leaves_out_types_without_a_name(program: Program, type_: str, shape: str) -> None:
    assert StateNames(program).shape(type_) == shape
