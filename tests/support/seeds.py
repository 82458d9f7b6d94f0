"""Seeds of generated worlds: a few for `make test`, more for `make test-full`, all of them for `make test-long`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def seeds(numbers: Sequence[int], *, quick: int, full: int | None = None) -> list[Any]:
    """The numbers as parameters: the first `quick` without a mark, those up to `full` (None: twice as many) as slow, the others as long."""
    full = 2 * quick if full is None else full
    return [
        *numbers[:quick],
        *(pytest.param(number, marks=pytest.mark.slow) for number in numbers[quick:full]),
        *(pytest.param(number, marks=pytest.mark.long) for number in numbers[full:]),
    ]
