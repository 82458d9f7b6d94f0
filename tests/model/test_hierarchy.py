from __future__ import annotations

from privtab.ir.nodes import EntityType
from privtab.model.nodes import Hierarchy


def forest(**parents: str | None) -> Hierarchy:
    return Hierarchy({n: EntityType(name=n, parent=p, single=n.startswith("one_")) for n, p in parents.items()})


TREE = forest(a=None, b="a", c="b", one_log="a", one_page="one_log", d="a", z=None)


def test_chains_run_from_the_root() -> None:
    assert TREE.chain("c") == ("a", "b", "c")
    assert TREE.chain("z") == ("z",)


def test_a_path_leads_to_ancestors_itself_and_singles_that_hang_off() -> None:
    assert [t for t in TREE.entities if TREE.reaches("c", t)] == ["a", "b", "c", "one_log", "one_page"]
    assert [t for t in TREE.entities if TREE.reaches("one_log", t)] == ["a", "one_log", "one_page"]
    assert set(TREE.targets("c")) == {"a", "b", "c", "one_log", "one_page"}


def test_descendants_and_ancestors() -> None:
    assert TREE.inside("b") == ("b", "c")
    assert TREE.within("c", "a")
    assert not TREE.within("a", "c")


def test_deep_chains_need_no_recursion() -> None:
    deep = forest(**{f"t{i}": f"t{i - 1}" if i else None for i in range(3000)})
    assert len(deep.chain("t2999")) == 3000
