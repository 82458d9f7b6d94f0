"""Decisions by joins of DataFrames, for states too large for an executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab._lazy import lazily

if TYPE_CHECKING:
    from privtab.spark.joins.decide import decide_by_joins
    from privtab.spark.joins.explain import explain_joins
    from privtab.spark.joins.figures import Figures, JoinLimits
    from privtab.spark.joins.prepare import forget

__all__ = ["Figures", "JoinLimits", "decide_by_joins", "explain_joins", "forget"]

_PLACES = {
    "decide": ("decide_by_joins",),
    "explain": ("explain_joins",),
    "figures": ("Figures", "JoinLimits"),
    "prepare": ("forget",),
}
__getattr__ = lazily(__name__, {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names})
