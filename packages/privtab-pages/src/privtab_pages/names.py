"""Names of the policy for texts of a page: made once, by one rule, and never the same for two texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal, TypeAlias
from unicodedata import normalize

from privtab.base import Diagnostic, FindingKind, Severity
from privtab_pages.tables import Cell, joined

UNREADABLE = FindingKind("T101", "unreadable-cell", Severity.ERROR)
LEFT_OUT = FindingKind("T104", "left-out", Severity.ERROR)
FOOTNOTE = "footnote"
"""The name by which footnotes are accepted."""
What: TypeAlias = Literal["type", "operation", "role"]
_NUMBERED = re.compile(r"\d+(?:\.\d+)*[.)]\s+(?=\S)")
_NEXT_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOTES = re.compile(r"(?:\s*(?:\*+|[†‡§¶]+|\[\^?[\w ]{1,6}\]|\(\d{1,3}\)))+\Z")
_ROUTE = re.compile(r"(?:[A-Z]{3,7}(?:[/|,][A-Z]{3,7})* )?/\S*")
_PICTURE = re.compile("[⟦⟧]")
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode has as printable, and fonts show as nothing."""
_TYPOGRAPHIC = dict.fromkeys(map(ord, "\u2018\u2019\u201c\u201d\u2010\u2011\u2013\u2014\u2026\u2192\u00b7\u2022"), "-")
"""Quotation marks, dashes, dots and arrows, which are between words."""


def without_notes(cell: Cell) -> tuple[str, tuple[str, ...]]:
    """The text of a cell without footnote marks, and these marks."""
    found = _NOTES.search(cell.text)
    marks = tuple(found[0].split()) if found and found.start() else ()
    return (cell.text[: found.start()] if found and marks else cell.text), (*cell.notes, *marks)


def identifier(text: str) -> str:
    """The words of a text as a name in lower case; empty for a text that does not begin with a letter.

    >>> identifier("GET /v1/{name}"), identifier("2. Tables"), identifier("Create/edit"), identifier("12")
    ('get_v1_name', 'tables', 'create_edit', '')
    """
    words = re.findall("[A-Za-z0-9]+", _NEXT_WORD.sub("_", _NUMBERED.sub("", joined(text), count=1)))
    name = "_".join(words).lower()
    return name if name[:1].isalpha() and re.match(r"[\w/\[\"'.\u2018\u201c]", joined(text)) else ""


def unseen(text: str) -> str | None:
    """The first character of a text that is not seen as what it is, as `U+200B`; None if there is none."""
    for character in text.replace("\n", "").translate(_TYPOGRAPHIC):
        if not character.isprintable() or _IGNORED.match(character) or normalize("NFKC", character) != character:
            return f"U+{ord(character):04X}"
    return None


LONGEST = 1_000
"""The most letters of a name: a key of YAML has 1,024."""


@dataclass(kw_only=True)
class Names:
    """The names that texts of a page have been given; findings say which have none."""

    given: Mapping[str, str]
    """The names that the caller said, for texts of the page."""
    accepted: Collection[str]
    found: list[Diagnostic]
    _texts: dict[tuple[str, str], str] = field(default_factory=dict)
    _told: set[Diagnostic] = field(default_factory=set)

    def _report(self, finding: Diagnostic) -> None:
        if finding not in self._told:
            self._told.add(finding)
            self.found.append(finding)

    def refuse(self, cell: Cell, message: str, advice: str | None = None) -> None:
        """Report a cell that is not read."""
        self._report(UNREADABLE.at(cell.span, message, advice))

    def leave_out(self, cell: Cell, name: str, message: str, advice: str = "") -> bool:
        """Return whether a part may be left out; reports a finding if nobody accepted that."""
        if name not in self.accepted:
            self._report(LEFT_OUT.at(cell.span, message, f"to do without: `--accept {quote(name)}`{advice}"))
        return name in self.accepted

    def plain(self, cell: Cell) -> bool:
        """Return whether all characters of a cell are seen as what they are; reports a finding if not."""
        if (character := unseen(cell.text)) is not None:
            message = f"`{cell.line}` has the character {character}, which is not seen as it is"
            self.refuse(cell, message, "write it without")
        return character is None

    def of(self, cell: Cell, what: What, *, within: str = "", prefix: str = "") -> list[tuple[str, str]]:
        """The names for the text of a cell, each with its title: its own words, unless `--name` says others.

        `within`: two texts in the same type may not have one name. `prefix`: a text before that of the cell.
        """
        text = joined(cell.text)
        if given := self.given.get(text, ""):
            names = [name.strip() for name in given.split(",")]
            return [(names[0], text)] if len(names) == 1 else [(name, name) for name in names]
        if not self.plain(cell):
            return []
        lines = cell.text.split("\n")
        routes = what == "operation" and len(lines) > 1 and all(map(_ROUTE.fullmatch, lines))
        parts = len(lines) > 1 and not routes and (what == "type" or not lines[0].endswith(":"))
        found = []
        for title in lines if routes else [f"{prefix} {text}".strip()]:
            name = identifier(title) if title.isascii() or title.translate(_TYPOGRAPHIC).isascii() else ""
            advice = f"name it: `--name {quote(title)}={what.upper() if what == 'type' else 'NAME'}`"
            if not name or _PICTURE.search(title) or (what == "type" and re.search(r"[/&,]|\band\b", title)) or parts:
                self.refuse(cell, f"`{title}` cannot be the name of one {what}", advice)
                return []
            if len(name) > LONGEST:
                self.refuse(
                    cell, f"`{title[:60]}…` cannot be the name of one {what}: it has {len(name):,} letters", advice
                )
                return []
            other = self._texts.setdefault((what + within, name), title)
            if other.lower() != title.lower():
                self.refuse(cell, f"`{title}` and `{other}` would both be the {what} `{name}`", advice)
                return []
            found.append((name, title))
        return found
