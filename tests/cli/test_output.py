"""What is shown while something runs."""

from __future__ import annotations

import io

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
