"""The meaning of marks in cells: what allows, what denies, and what is neither for sure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from privtab_pages.names import without_notes
from privtab_pages.tables import Cell, joined, words

YES = words(
    "✓ ✔ ☑ ✅ √ 🗸 • ● ⬤ ◉ 🟢 + yes y true allow allowed granted permitted enabled check checked tick [x] all full"
) | {"full access"}
NO = words("✗ ✘ ✖ ✕ ❌ ☐ ⛔ 🚫 🔴 - -- \u2013 — no n false deny denied none never n/a") | {
    "",
    "not applicable",
    "not allowed",
    "no access",
    "unchecked",
    "disabled",
    "[ ]",
    "[]",
}
ALLOWED = "✓"
CROSSES = frozenset(["x", "\u00d7"])
"""Crosses: a denial beside marks that allow, else what allows."""
CIRCLES = frozenset(["○", "◯", "⚪", "o"])
"""Empty circles: a denial beside full ones or if nothing else denies, else nothing for sure."""
_FULL = frozenset(["●", "⬤", "◉", "🟢"])
_EMOJI = re.compile(r":([\w+-]+):")
_PICTURE = re.compile("⟦([^⟧]*)⟧")
_SHOWS_YES = re.compile(r"(?:^|[\W_])(?:check(?:ed|mark)?|tick|yes|true|allowed|supported)(?:$|[\W_])", re.IGNORECASE)
_SHOWS_NO = re.compile(
    r"(?:^|[\W_])(?:x|x-?mark|cross(?:mark)?|times|no|not|false|close|ban|unchecked|denied|entry|unsupported)(?:$|[\W_])",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"(?:view|see|read|list|browse|search|get|show|comment|reply|add|create|new|insert|edit|update|write|modify|change|delete|remove|manage|run|execute|use|share|export|import|publish|approve|invite|assign|download|upload|archive|restore|move|copy|clone|submit|review|deploy|start|stop|configure|enable|disable|install|monitor|query|subscribe|grant|revoke|lock|unlock|merge|push|pull|rename)(?: [a-z]+){0,2}",
    re.IGNORECASE,
)
_LEGEND = re.compile(r"\s*([^\s:=]{1,4}|:\w+:|⟦[^⟧]*⟧)\s*(?:[:=→]|\u2013|-|means)\s*([^,;|]+)")
_SAYS_YES = re.compile(
    r"(?:yes|allowed|granted|permitted|can\b|has (?:the )?(?:access|permission|privilege)|full|enabled|available|permission)",
    re.IGNORECASE,
)
_LONGEST = 200
"""The most characters of a line that explains marks."""
_REQUIRED = re.compile(r"(?:the )?(?:privilege|permission|right)?s? ?(?:is |are )?required\b", re.IGNORECASE)
"""Words that say that a mark stands for what an action requires."""
_SAYS_NO = re.compile(r"(?:no\b|not\b|denied|never|cannot|can't|disabled|none\b|without)", re.IGNORECASE)
_SAYS_MORE = re.compile(
    r"\b(?:only|if|when|own|limited|partial\w*|except|unless|within|assigned|some|condition\w*|optional\w*|read|depend\w*|custom\w*|inherit\w*|requir\w*|with|option)\b",
    re.IGNORECASE,
)


def mark(text: str) -> str:
    """A mark in the form in which marks are compared: pictures and codes of emoji become marks."""
    text = joined(text).replace("\ufe0f", "").replace("\ufe0e", "").lower()
    if text in ("⟦checked⟧", "⟦unchecked⟧"):
        return text.strip("⟦⟧")
    if found := _PICTURE.fullmatch(text) or _EMOJI.fullmatch(text):
        no, yes = _SHOWS_NO.search(found[1]), _SHOWS_YES.search(found[1])
        return "✗" if no else "✓" if yes else text
    return text


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one table: which of them allow, and which deny."""

    yes: frozenset[str]
    no: frozenset[str]
    legend: dict[str, str] = field(default_factory=dict)
    """The meaning of marks, where the page says it."""

    @classmethod
    def of(cls, cells: Iterable[Cell], lines: Sequence[str]) -> Marks:
        """Tell from the marks of a table, and the lines beside it, what its marks mean."""
        used = {mark(cell.text) for cell in cells}
        yes, no = set(YES), set(NO)
        crosses, circles = used & CROSSES, used & CIRCLES
        if used & (YES - {"+"}):
            no |= crosses
        elif len(crosses) == 1 and not used & {"✗", "✘", "✖", "✕", "❌"}:
            yes |= crosses
        no |= circles if used & _FULL or (used & yes and len(circles) == 1 and not used & no) else set()
        if {"0", "1"} <= used and "2" not in used:
            yes, no = yes | {"1"}, no | {"0"}
        legend = {}
        for line in (line for line in lines if len(line) < _LONGEST):
            for found in _LEGEND.finditer(line):
                if (key := mark(found[1])) in used and key and not _VERB.fullmatch(key):
                    legend[key] = found[2].strip()
        for key, meaning in legend.items():
            if _REQUIRED.match(meaning):
                continue
            more, denies = _SAYS_MORE.search(meaning), _SAYS_NO.match(meaning)
            yes -= {key} if more or denies or not _SAYS_YES.match(meaning) else set()
            no -= set() if denies and not more else {key}
            (no if denies else yes).update(set() if more or not (denies or _SAYS_YES.match(meaning)) else {key})
        return cls(frozenset(yes), frozenset(no), legend)

    @property
    def required(self) -> bool:
        """True if the page says that marks stand for what actions require."""
        return any(map(_REQUIRED.match, self.legend.values()))

    def allows(self, text: str) -> bool | None:
        """True for what allows, False for what denies, None for any other text."""
        shown = mark(text)
        return True if shown in self.yes else False if shown in self.no else None


def actions_in(cell: Cell) -> dict[str, str] | None:
    """The actions that a cell lists, each with a mark that has its footnotes; None if it lists none, or anything else."""
    found: dict[str, str] = {}
    for line in cell.text.split("\n"):
        text, notes = without_notes(cell._replace(text=line))
        parts = [joined(part) for part in re.split(r"[,;]|(?<=\w)/(?=\w)| and ", text) if part.strip()]
        if not all(map(_VERB.fullmatch, parts)):
            return None
        found |= {part.lower(): ALLOWED + "".join(notes) for part in parts}
    return found or None
