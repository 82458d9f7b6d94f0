"""Questions about a policy and a state beyond a single decision."""

from privtab.base.lazy import renamed
from privtab_analysis.changes import Change, apply, change_text
from privtab_analysis.effects import Path, Step
from privtab_analysis.explain import RequestExplanation, explain
from privtab_analysis.goals import Goal, goal, operation_goal
from privtab_analysis.paths import ReachableRights, SearchSpace, escalations
from privtab_analysis.turns import Ways, ways
from privtab_analysis.what_can import AllowedOperation, WhatCan, what_can
from privtab_analysis.who_can import Evidence, Principal, WhoCan, who_can

__all__ = [
    "AllowedOperation",
    "Change",
    "Evidence",
    "Goal",
    "Path",
    "Principal",
    "ReachableRights",
    "RequestExplanation",
    "SearchSpace",
    "Step",
    "Ways",
    "WhatCan",
    "WhoCan",
    "apply",
    "change_text",
    "escalations",
    "explain",
    "goal",
    "operation_goal",
    "ways",
    "what_can",
    "who_can",
]

__getattr__ = renamed(
    __name__,
    {
        "Ground": "SearchSpace",
        "May": "AllowedOperation",
        "Reach": "ReachableRights",
        "Through": "Evidence",
        "Why": "RequestExplanation",
    },
)
