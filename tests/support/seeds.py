"""Seeds of generated worlds: a few for `make test` or `make test-full`, all of them, and new ones each day, for `make test-long`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

DAY = "PRIVTAB_SEED"
"""The variable with the day whose seeds are taken; a run that is not given one sets it to its own, and says so in its header."""


def the_day() -> str:
    """The day of the run: `20261130`. Processes that the run begins have the same."""
    return os.environ.setdefault(DAY, f"{datetime.now(UTC):%Y%m%d}")


def daily(number: int) -> list[int]:
    """The seed 0, and further ones that are new each day."""
    return [0, *(int(the_day()) * 100 + each for each in range(1, number))]


def seeds(numbers: Sequence[int], *, quick: int, full: int | None = None) -> list[Any]:
    """The numbers as parameters: the first `quick` without a mark, those up to `full` (None: no more) as slow, the others as long."""
    full = quick if full is None else full
    return [
        *numbers[:quick],
        *(pytest.param(number, marks=pytest.mark.slow) for number in numbers[quick:full]),
        *(pytest.param(number, marks=pytest.mark.long) for number in numbers[full:]),
    ]
