"""The meaning of marks in cells: what allows, what denies, and what is neither for sure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
_LEGEND = re.compile(
    r"(?<![^\s(\"'\u201c`])([^\s:=()\"`]{1,4}|:[\w+-]+:|⟦[^⟧]*⟧)[\"'\u201d`)]?\s*(?:[:=→]|\u2013|\u2014|-|means?|indicates?|denotes?|marks|shows|stands for):?(?=[\s\w(])"
)
"""The begin of what a line says of a mark."""
_MEANS = words(
    "a access applicable action actions allow allowed allows an and are available can do does enabled feature features full grant granted grants has have in is it its may member members of operation operations perform performed permission permissions permitted privilege privileges right rights role roles supported take that the these this to user users yes"
)
"""The words of a legend whose mark allows; with one of _DENIES, it denies."""
_ALLOWS = words(
    "allow allowed allows available can enabled full grant granted grants has have may permission permitted yes supported"
)
_DENIES = words(
    "no not cannot can't can\u2019t denied never disabled none without unavailable n/a doesn't unsupported forbidden"
)
_LONGEST = 200
"""The most characters of a line that explains marks."""
_REQUIRED = re.compile(r"(?:the )?(?:privilege|permission|right)?s? ?(?:is |are )?required\b", re.IGNORECASE)
"""Words that say that a mark stands for what an action requires."""


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
        legend = {
            key: meaning
            for line in lines
            if len(line) < _LONGEST
            for key, meaning in _legend(line)
            if key in used and key and not _VERB.fullmatch(key)
        }
        for key, meaning in legend.items():
            if not _REQUIRED.match(meaning):
                allows = _means(meaning)
                yes, no = yes - {key}, no - {key}
                (yes if allows else no).update({key} - ({key} if allows is None else set()))
        return cls(frozenset(yes), frozenset(no), legend)

    @property
    def required(self) -> bool:
        """True if the page says that marks stand for what actions require."""
        return any(map(_REQUIRED.match, self.legend.values()))

    def allows(self, text: str) -> bool | None:
        """True for what allows, False for what denies, None for any other text."""
        shown = mark(text)
        return True if shown in self.yes else False if shown in self.no else None


def _legend(line: str) -> Iterator[tuple[str, str]]:
    """The marks that a line explains, each with what it says of it: all up to the next mark, or the end of the sentence."""
    found = [*_LEGEND.finditer(line)]
    for one, after in zip(found, [*(other.start() for other in found[1:]), len(line)], strict=False):
        yield mark(one[1]), re.split(r"[.;|](?:\s|$)", line[one.end() : after].strip())[0].strip(" ,()")


def _means(meaning: str) -> bool | None:
    """True for a meaning that allows, False for one that denies, None for one with any word that may say more."""
    said = re.findall(r"[^\W_][^\s,()/]*", meaning.lower())
    denies = [word for word in said if word in _DENIES]
    if len(denies) > 1 or {*said} - _MEANS - _DENIES or not (denies or {*said} & _ALLOWS):
        return None
    return not denies


def actions_in(cell: Cell) -> dict[str, str] | None:
    """The actions that a cell lists, each with a mark that has its footnotes; None if it lists none, or anything else."""
    found: dict[str, str] = {}
    for line in cell.text.split("\n"):
        text, notes = without_notes(cell._replace(text=line))
        parts = [joined(part) for part in re.split(r"[,;]|(?<=\w) ?/ ?(?=\w)| and ", text) if part.strip()]
        if not all(map(_VERB.fullmatch, parts)):
            return None
        found |= {part.lower(): ALLOWED + "".join(notes) for part in parts}
    return found or None
