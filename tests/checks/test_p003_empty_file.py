from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_comments_alone(only: Callable[..., Any]) -> None:
    found = only("# only a comment\n", "P003")
    assert found.message == "the file is empty"
    assert found.help == "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"
