"""Shipped policies as parameters: a few for `make test`, one release of each system for `make test-full`, all for `make test-long`."""

from __future__ import annotations

from collections.abc import Collection
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


FEW = frozenset({"cdap/manual", "kafka/4.4", "lakekeeper/4.9"})
"""Tables that have most words of the language together."""


def by_release(*, quick: Collection[str] = (), full: Collection[str] | None = None) -> list[Any]:
    """The paths of all shipped policies, as slow parameters.

    `quick`: names of those without a mark; `full`: of those that are not long, None: those that are of no earlier release.
    """
    named = {f"{path.parent.name}/{path.stem}": path for path in find_policies([POLICIES])}
    assert named.keys() >= EARLIER | FEW, "a table is shipped no more"
    slow = named.keys() - EARLIER if full is None else full
    return [
        pytest.param(
            path, id=name, marks=() if name in quick else pytest.mark.slow if name in slow else pytest.mark.long
        )
        for name, path in named.items()
    ]
