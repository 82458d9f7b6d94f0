"""What is shown while something runs."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from privtab.cli import _output


@pytest.mark.parametrize(("total", "shown"), [(0, False), (3, True)])
def test_a_bar_is_shown_where_there_is_something_to_do(
    monkeypatch: pytest.MonkeyPatch, total: int, *, shown: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(_output, "err", lambda: Console(file=screen, force_terminal=True, width=80))
    with _output.progress(total):
        pass
    assert (f"0/{total}" in screen.getvalue()) is shown


@pytest.mark.parametrize(
    ("terminal", "wait", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_what_takes_a_second_is_said_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, wait: bool, shown: bool
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80)
    begun = threading.Event()
    status = console.status("comparing")
    monkeypatch.setattr(_output, "err", lambda: console)
    monkeypatch.setattr(console, "status", lambda _: status)
    start = status.start

    def started() -> None:
        start()
        begun.set()

    monkeypatch.setattr(status, "start", started)
    with _output.working("comparing"):
        if wait:
            begun.wait(10 if shown else 1.5)
    assert ("comparing" in screen.getvalue()) is shown
