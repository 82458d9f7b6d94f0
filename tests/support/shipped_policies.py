"""Shipped policies as parameters: one release of each system for `make test-full`, all releases for `make test-long`."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import POLICIES

from privtab.pipeline import find_policies

EARLIER = frozenset(
    {
        "cdap/draft",
        "cdap/initial",
        "cdap/revised",
        "gravitino/1.1.0",
        "gravitino/1.2.0",
        "gravitino/1.3.0",
        "kafka/3.9",
        "polaris/1.7",
        "trino/476",
        "unitycatalog/0.6",
    }
)
"""Tables of which another release has nearly the same rows."""


def by_release() -> list[Any]:
    """The paths of all shipped policies, as slow parameters; those of earlier releases are long."""
    named = {f"{path.parent.name}/{path.stem}": path for path in find_policies([POLICIES])}
    assert named.keys() >= EARLIER, "an earlier release is shipped no more"
    return [
        pytest.param(path, id=name, marks=pytest.mark.long if name in EARLIER else pytest.mark.slow)
        for name, path in named.items()
    ]
