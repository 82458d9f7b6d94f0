"""Threads that write at the same time share transactions, and none waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import pytest

from privtab_server.store.database import MOST_TOGETHER, GroupCommit, Take


class Transactions:
    """Writes items by appending them; the first transaction is held open until it is let go."""

    def __init__(self) -> None:
        self.written: list[list[int]] = []
        self.begun, self.go_on = Event(), Event()
        self.commits = GroupCommit(self.write)

    def write(self, take: Take[int]) -> None:
        items = [*take()]
        self.begun.set()
        self.go_on.wait()
        items += take()
        if -1 in items:
            raise ValueError("refused")
        self.written.append(items)

    def submit_beside(self, groups: list[list[int]]) -> list[BaseException]:
        """Submit groups from threads of their own, in order, while the first transaction is open."""
        errors: list[BaseException] = []

        def submit(items: list[int]) -> None:
            try:
                self.commits.submit(items)
            except ValueError as error:
                errors.append(error)

        threads = [Thread(target=submit, args=(items,)) for items in groups]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: self.begun.is_set() and self.commits.waiting() == number)  # type: ignore[misc]
        self.go_on.set()
        for thread in threads:
            thread.join()
        return errors


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


@pytest.fixture
def transactions() -> Transactions:
    return Transactions()


def test_waiting_changes_of_threads_share_a_transaction(transactions: Transactions) -> None:
    assert transactions.submit_beside([[1], [2, 3], [4]]) == []
    assert transactions.written == [[1, 2, 3, 4]]


def test_a_full_transaction_leaves_the_others_to_the_next(transactions: Transactions) -> None:
    large = list(range(MOST_TOGETHER))
    assert transactions.submit_beside([[1], large, [2], [3]]) == []
    assert transactions.written == [[1, *large], [2, 3]]


def test_one_that_fails_raises_where_it_was_written_and_the_next_thread_writes(transactions: Transactions) -> None:
    large = list(range(MOST_TOGETHER))
    errors = transactions.submit_beside([[-1], large, [2]])
    assert [str(error) for error in errors] == ["refused"]
    assert transactions.written == [[2]]


def test_a_thread_that_is_interrupted_before_it_takes_anything_is_forgotten() -> None:
    def write(take: Take[int]) -> None:
        if not written:
            written.append(0)
            raise KeyboardInterrupt
        written.extend(take())

    written: list[int] = []
    commits = GroupCommit(write)
    with pytest.raises(KeyboardInterrupt):
        commits.submit([1])
    assert commits.waiting() == 0
    commits.submit([2])
    assert written == [0, 2]
