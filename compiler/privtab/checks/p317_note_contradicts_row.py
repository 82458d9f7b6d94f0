"""P317: a note that contradicts its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import in_every_type, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.errors import Undecided

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.canonical import AtomSet
    from privtab.ir.nodes import Rule
    from privtab.model import nodes as m

KIND = FindingKind("P317", "note-contradicts-row", Severity.WARNING)
_UNFILTERED = re.compile(
    r"\ball\b[^.;]*\b(even if|even when|regardless|whether or not|no matter)\b[^.;]*",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(any ?one|any ?body|every ?one|every ?body|any (user|caller)|all users)\b(?! (who|whom|that|with|else|but|except|in|of)\b)"
    r" (may|can|could|is allowed|are allowed|has access|have access)\b"
    r"|\bno (privileges?|permissions?|checks?|authori[sz]ation|access)\b[^.;]*\b(required|needed|necessary|asked|checked|made)\b"
    r"|\b(no (privilege|permission|check|authori[sz]ation)s?|nothing) (is|are) (required|needed|necessary|asked|checked)\b"
    r"|\b(permissions?|privileges?|access|authori[sz]ation) (is|are) not (required|needed|checked)\b"
    r"|\bwithout (any )?(check|permission|privilege|authori[sz]ation)s?\b",
    re.IGNORECASE,
)
_OWNERS = re.compile(
    r"\b(only|none but|nobody but) (the |its |an )?owners?\b|\b(the |its )?owners? (only|alone)\b(?! (is|are) not)",
    re.IGNORECASE,
)
_ADMINS = re.compile(
    r"\bonly (a |the )?service admin(istrator)?s?\b|\bservice admin(istrator)?s? only\b", re.IGNORECASE
)
_NOTHING = re.compile(
    r"\b(has|have) no effects?\b|\b(gets|is granted|receives) nothing\b|\bgrants nothing\b", re.IGNORECASE
)
_NOT_NEEDED = re.compile(
    r"\b(is|are) not (required|needed|necessary)\b|\bneed not (be )?(held|have|hold)\b", re.IGNORECASE
)
_NOT_ENOUGH = re.compile(r"\b(alone )?(is|are) not (enough|sufficient)\b|\bdoes not suffice\b", re.IGNORECASE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Notes whose claims about callers or effects are false, recognised by a few phrases.

    They are compared with the exact meaning of the row: all items shown although `each` filters, any caller although
    something is required, only owners although others pass, no effect although there is one, or a privilege that is not
    needed although no caller passes without it.
    """
    yield from in_every_type(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    view = view_of(policy)
    for row in policy.rows.values():
        if row.decl.note is None:
            continue
        for claim, fact in _decided_claims(view, row, " ".join(row.decl.note.split())):
            yield (
                row,
                KIND.at(
                    row.decl.span,
                    f"the note of `{row.operation}` says `{claim}`, but {fact}",
                    "correct the row or its note; if the document says both, record the other reading under `ambiguous`",
                ),
            )
            break


def _decided_claims(view: View, row: m.Row, note: str) -> Iterator[tuple[str, str]]:
    try:
        yield from _false_claims(view, row, note)
    except Undecided:
        view.undecided(row)


def _false_claims(view: View, row: m.Row, note: str) -> Iterator[tuple[str, str]]:
    from privtab.ir.formula import conjunction, item_condition
    from privtab.ir.nodes import Has, Owner, ServiceAdmin

    rule = view.rule(row)
    required = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)

    def minimal_sets() -> list[AtomSet]:
        return [atoms for s in view.settings(rule) for atoms in view.sets(item_condition(rule), s)]

    claims: tuple[tuple[re.Pattern[str], Callable[[], bool], str], ...] = (
        (_UNFILTERED, lambda: _filters(view, rule), "items are left out"),
        (
            _OPEN,
            lambda: not view.implies(rule, rule.gate, required, unknown=True),
            "something is required of the caller",
        ),
        (_OWNERS, lambda: any(not any(isinstance(a, Owner) for a in s) for s in minimal_sets()), "others pass too"),
        (
            _ADMINS,
            lambda: any(not any(isinstance(a, ServiceAdmin) for a in s) for s in minimal_sets()),
            "others pass too",
        ),
        (_NOTHING, lambda: bool(rule.effects), "it has effects"),
    )
    for pattern, wrong, fact in claims:
        match = pattern.search(note)
        if match and wrong():
            yield _short(match.group()), fact
    for name in view.policy.privileges:
        if name not in note:
            continue
        claim = re.search(rf"\b{re.escape(name)}\b (?P<rest>[^.;,]*)", note)
        if claim is None:
            continue
        uses = [[isinstance(a, Has) and a.privilege == name for a in s] for s in minimal_sets()]
        if _NOT_NEEDED.match(claim["rest"]) and uses and all(any(use) for use in uses):
            yield _short(claim.group()), f"no caller passes without `{name}`"
        if _NOT_ENOUGH.match(claim["rest"]) and any(all(use) for use in uses if use):
            yield _short(claim.group()), f"`{name}` is enough"


def _filters(view: View, rule: Rule) -> bool:
    """Whether `each` requires more than the call does."""
    from privtab.ir.formula import call_condition

    return rule.each is not None and not view.implies(rule, call_condition(rule), rule.each, unknown=True)


def _short(text: str) -> str:
    words = text.strip().split()
    return " ".join(words) if len(words) <= 16 else " ".join([*words[:5], "…", *words[-4:]])
