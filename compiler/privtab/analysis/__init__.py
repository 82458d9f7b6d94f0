"""Questions about a policy and a state that go beyond one answer."""

from privtab.analysis.changes import Change, apply, change_text
from privtab.analysis.explain import Why, explain
from privtab.analysis.goals import Goal, goal, operation_goal
from privtab.analysis.paths import Ground, Path, Reach, Step, escalations
from privtab.analysis.turns import Ways, ways
from privtab.analysis.what_can import May, WhatCan, what_can
from privtab.analysis.who_can import Principal, Through, WhoCan, who_can

__all__ = [
    "Change",
    "Goal",
    "Ground",
    "May",
    "Path",
    "Principal",
    "Reach",
    "Step",
    "Through",
    "Ways",
    "WhatCan",
    "WhoCan",
    "Why",
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
