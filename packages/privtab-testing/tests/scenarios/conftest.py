"""A way to read scenarios about the small shop."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from shop_policy import POLICY, Reads, Refuses

from privtab.base import Diagnostic, PolicyInvalid
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.collect import plans


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    """The plan of a scenario text about the policy, or about another one; `chosen`: about a variant or other readings."""

    def read(text: str, policy: str = POLICY, *, chosen: bool = False) -> CasePlan:
        (tmp_path / "shop.yaml").write_text(dedent(policy), encoding="utf-8")
        (tmp_path / "shop.scenarios.yaml").write_text("scenarios: 1\n" + dedent(text), encoding="utf-8")
        [plan] = [plan for plan in plans([tmp_path / "shop.yaml"]) if bool(plan.subject.options_text()) is chosen]
        return plan

    return read


@pytest.fixture
def refuses(reads: Reads) -> Refuses:
    """The findings of a scenario text that is wrong."""

    def read(text: str, policy: str = POLICY) -> list[Diagnostic]:
        with pytest.raises(PolicyInvalid) as caught:
            reads(text, policy)
        return list(caught.value.diagnostics)

    return read
