"""Questions about a policy and a state beyond a single decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base import face

if TYPE_CHECKING:
    from privtab_analysis.changes import Change, apply, change_text
    from privtab_analysis.effects import Path, Step
    from privtab_analysis.explanation import RequestExplanation, explain
    from privtab_analysis.goals import Goal, goal, operation_goal
    from privtab_analysis.paths import ReachableRights, SearchSpace, escalations
    from privtab_analysis.permissions import AllowedOperation, WhatCan, what_can
    from privtab_analysis.principals import Evidence, Principal, WhoCan, who_can
    from privtab_analysis.turns import Remedies, remedies
else:
    __getattr__, __dir__, __all__ = face(__name__)
