"""What was used last is kept, within a number, a weight and a time."""

from __future__ import annotations

import pickle

from privtab.base.caching import RecentlyUsed


def test_the_number_of_entries_is_bounded() -> None:
    gone: list[tuple[str, int]] = []
    last: RecentlyUsed[str, int] = RecentlyUsed(2, dropped=lambda key, value: gone.append((key, value)))
    for number, key in enumerate("abc"):
        last.put(key, number)
        assert last.get("a") == (0 if key != "c" or "a" in last else None)
    assert list(last.items()) == [("c", 2), ("a", 0)]
    assert gone == [("b", 1)]


def test_peeking_and_iterating_use_nothing() -> None:
    last: RecentlyUsed[str, int] = RecentlyUsed(2)
    last.put("a", 1)
    last.put("b", 2)
    assert (last.peek("a"), "a" in last, list(last), list(last.values())) == (1, True, ["a", "b"], [1, 2])
    assert next(reversed(last)) == "b"
    last.put("c", 3)
    assert (last.peek("a"), last.get("a")) == (None, None)


def test_the_weight_is_bounded_but_for_the_last_entry() -> None:
    last: RecentlyUsed[str, str] = RecentlyUsed(weight=len, heaviest=10)
    last.put("a", "x" * 6)
    last.put("b", "x" * 4)
    assert list(last) == ["a", "b"]
    last.put("a", "x" * 2)
    last.put("c", "x" * 4)
    assert list(last) == ["b", "a", "c"], "a new value has a new weight"
    last.put("d", "x" * 50)
    assert list(last) == ["d"]
    last.put("e", "x")
    assert list(last) == ["e"]
    assert last.pop("e") == "x"
    last.put("f", "x" * 10)
    last.clear()
    last.put("g", "x" * 10)
    assert list(last) == ["g"]


def test_values_are_kept_for_some_time_after_they_were_put() -> None:
    now = 0.0
    last: RecentlyUsed[str, int] = RecentlyUsed(seconds=10, clock=lambda: now)
    last.put("a", 1)
    now = 9
    assert last.get("a") == 1
    now = 10
    assert last.get("a") is None
    assert len(last) == 0


def test_no_entries_may_be_kept() -> None:
    last: RecentlyUsed[str, int] = RecentlyUsed(0)
    last.put("a", 1)
    assert len(last) == 0


def test_entries_go_to_another_process() -> None:
    last: RecentlyUsed[str, int] = RecentlyUsed(1)
    last.put("a", 1)
    copy = pickle.loads(pickle.dumps(last))  # noqa: S301  (it was written here)
    copy.put("b", 2)
    assert list(copy.items()) == [("b", 2)]
