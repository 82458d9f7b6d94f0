"""The principals of users are split when they are first looked up, and malformed ones are refused before that."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.errors import PolicyError
from privtab.engines.index import Index, Principals

NAMES = st.text("abc:", max_size=3)
EMPTY: dict[str, Any] = {
    "revision": "r", "allow": {}, "deny": {}, "owners": {}, "members": {}, "principals": {}, "group_principals": {},
    "within": {}, "scoped": {}, "group_scoped": {}, "service_admins": [],
}  # fmt: skip


@given(st.dictionaries(NAMES, st.lists(NAMES, min_size=1, max_size=3).map(tuple)), NAMES)
def test_principals_are_a_mapping_of_all_names(expected: dict[str, tuple[str, ...]], name: str) -> None:
    found = Principals({name: "\n".join(listed) for name, listed in expected.items()})
    assert found.get(name, ()) == expected.get(name, ())
    assert (name in found) is (name in expected)
    assert found.flat() == ([p for listed in expected.values() for p in listed], list(map(len, expected.values())))
    assert list(found.items()) == list(expected.items())
    assert pickle.loads(pickle.dumps(found)) == expected  # noqa: S301


@pytest.mark.parametrize("part", ["principals", "group_principals"])
@pytest.mark.parametrize("wrong", [{"ann": "user:ann", "ben": ["user:ben"]}, {"ann": None}, {"ann": 1}, ["ann"], None])
def test_principals_of_any_user_that_are_no_text_refuse_the_whole_state(part: str, wrong: object) -> None:
    assert Index({**EMPTY, part: {"ann": "user:ann"}}).revision == "r"
    with pytest.raises(PolicyError, match="not an index"):
        Index({**EMPTY, part: wrong})
