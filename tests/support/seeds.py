"""Seeds of generated worlds: a few for `make test`, the others for `make test-full`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(numbers: range, *, quick: int) -> list[Any]:
    """The numbers as parameters, of which only the first few are not marked as slow."""
    return [
        *numbers[:quick],
        *(pytest.param(number, marks=pytest.mark.slow) for number in numbers[quick:]),
    ]
