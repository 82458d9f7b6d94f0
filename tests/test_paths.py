"""Paths on which a type nests are read in one way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from privtab.base.paths import PathShape, base_type

NAMES = st.text(alphabet="abc", min_size=1, max_size=2)
CATALOGS = PathShape((("catalog", 1),))
NAMESPACES = PathShape((("catalog", 1), ("namespace", 2)), nested=1, bound=5)
TABLES = PathShape((("catalog", 1), ("namespace", 2), ("table", 3)), nested=1, bound=5)
COLUMNS = PathShape((("catalog", 1), ("namespace", 2), ("info", 2), ("column", 3)), nested=1, bound=5)
SHAPES = {"namespace": NAMESPACES, "table": TABLES, "column": COLUMNS}


@given(catalog=NAMES, levels=st.lists(NAMES, min_size=1, max_size=5), last=NAMES)
def test_each_name_has_one_type(catalog: str, levels: list[str], last: str) -> None:
    spaces = [f"namespace:{'/'.join([catalog, *levels[:count]])}" for count in range(1, len(levels) + 1)]
    path = "/".join([catalog, *levels])
    assert NAMESPACES.keys(path) == [f"catalog:{catalog}", *spaces]
    assert TABLES.keys(f"{path}/{last}") == [f"catalog:{catalog}", *spaces, f"table:{path}/{last}"]
    assert COLUMNS.keys(f"{path}/{last}") == [
        f"catalog:{catalog}",
        *spaces,
        f"info:{path}",
        f"column:{path}/{last}",
    ]
    assert TABLES.levels(f"{path}/{last}") == NAMESPACES.levels(path) == len(levels)


@given(first=st.lists(NAMES, min_size=3, max_size=7), second=st.lists(NAMES, min_size=3, max_size=7))
def test_different_entities_have_different_keys(first: list[str], second: list[str]) -> None:
    for type_, shape in SHAPES.items():
        for other_type, other_shape in SHAPES.items():
            if (type_, first) != (other_type, second):
                assert shape.keys("/".join(first))[-1] != other_shape.keys("/".join(second))[-1]


@given(levels=st.lists(NAMES, min_size=1, max_size=5))
def test_a_path_without_its_last_name_has_the_keys_of_the_container(levels: list[str]) -> None:
    container = "/".join(["c", *levels])
    assert TABLES.keys(f"{container}/") == NAMESPACES.keys(container)
    assert TABLES.levels(f"{container}/") == len(levels)
    assert not TABLES.named(f"{container}/")
    assert NAMESPACES.keys("c/") == CATALOGS.keys("c")
    assert NAMESPACES.levels("c/") == 1
    assert NAMESPACES.keys(f"{container}/") == NAMESPACES.keys(container)


def test_types_of_levels_have_a_fixed_depth() -> None:
    assert [(base_type(type_), depth) for type_, depth in COLUMNS.links(3)] == [
        ("catalog", 1),
        ("namespace", 2),
        ("namespace", 3),
        ("namespace", 4),
        ("info", 4),
        ("column", 5),
    ]


def test_paths_as_text() -> None:
    assert [shape.example() for shape in (CATALOGS, NAMESPACES, TABLES, COLUMNS)] == [
        "catalog",
        "catalog/namespace/…",
        "catalog/namespace/…/table",
        "catalog/namespace/…/column",
    ]
