"""Documents that rows are from: sources, notes, and cells that can be read in several ways: P303, P317, P318, P329, P339."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from privtab.base.diagnostics import Located, Severity
from privtab.base.errors import Undecided
from privtab.base.lazy import pattern
from privtab.checks._view import Found, FoundInRow, View, check, check_in_every_type, compare, declared, view_of
from privtab.ir.canonical import AtomSet
from privtab.ir.formula import own_condition
from privtab.ir.nodes import Has, Owner, Rule, ServiceAdmin
from privtab.model import nodes as m
from privtab.model.nodes import Policy


@check("P303", Severity.WARNING)
def row_without_source(policy: Policy) -> Iterator[Found]:
    """Rows without `source`, each once even if it applies to several types; none if the file has no `sources`."""
    if not policy.sources:
        return
    example = "source: 15" if len(policy.sources) == 1 else f"source: {next(iter(policy.sources))}:15"
    for row in declared(policy):
        if not row.decl.source:
            advice = f"add the line of the document: `{example}`"
            yield Found(row.decl.span, f"the row `{row.operation}` has no `source`", advice)


_UNFILTERED = pattern(r"\ball\b[^.;]*\b(even if|even when|regardless|whether or not|no matter)\b[^.;]*", re.IGNORECASE)
_OPEN = pattern(
    r"\b(any ?one|any ?body|every ?one|every ?body|any (user|caller)|all users)\b(?! (who|whom|that|with|else|but|except|in|of)\b)"
    r" (may|can|could|is allowed|are allowed|has access|have access)\b"
    r"|\bno (privileges?|permissions?|checks?|authori[sz]ation|access)\b[^.;]*\b(required|needed|necessary|asked|checked|made)\b"
    r"|\b(no (privilege|permission|check|authori[sz]ation)s?|nothing) (is|are) (required|needed|necessary|asked|checked)\b"
    r"|\b(permissions?|privileges?|access|authori[sz]ation) (is|are) not (required|needed|checked)\b"
    r"|\bwithout (any )?(check|permission|privilege|authori[sz]ation)s?\b",
    re.IGNORECASE,
)
_OWNERS = pattern(
    r"\b(only|none but|nobody but) (the |its |an )?owners?\b|\b(the |its )?owners? (only|alone)\b(?! (is|are) not)",
    re.IGNORECASE,
)
_ADMINS = pattern(r"\bonly (a |the )?service admin(istrator)?s?\b|\bservice admin(istrator)?s? only\b", re.IGNORECASE)
_NOTHING = pattern(
    r"\b(has|have) no effects?\b|\b(gets|is granted|receives) nothing\b|\bgrants nothing\b", re.IGNORECASE
)
_NOT_NEEDED = pattern(
    r"\b(is|are) not (required|needed|necessary)\b|\bneed not (be )?(held|have|hold)\b", re.IGNORECASE
)
_NOT_ENOUGH = pattern(r"\b(alone )?(is|are) not (enough|sufficient)\b|\bdoes not suffice\b", re.IGNORECASE)


@check_in_every_type("P317", Severity.WARNING)
def note_contradicts_row(policy: m.Policy) -> Iterator[FoundInRow]:
    """Notes whose claims about callers or effects are false, recognised by a few phrases.

    They are compared with the exact meaning of the row: all items shown although `each` filters, any caller although
    something is required, only owners although others pass, no effect although there is one, or a privilege that is not
    needed although no caller passes without it.
    """
    view = view_of(policy)
    for row in policy.rows.values():
        if row.decl.note is None:
            continue
        try:
            claim, fact = next(_false_claims(view, row, " ".join(row.decl.note.split())), (None, None))
        except Undecided:
            view.undecided(row)
            continue
        if claim is not None:
            yield (
                row,
                row.decl.span,
                f"the note of `{row.operation}` says `{claim}`, but {fact}",
                "correct the row or its note; if the document says both, record the other reading under `ambiguous`",
            )


def _false_claims(view: View, row: m.Row, note: str) -> Iterator[tuple[str, str]]:
    rule = view.rule(row)
    required = own_condition(rule)

    def minimal_sets() -> list[AtomSet]:
        return [atoms for s in view.settings(rule) for atoms in view.sets(rule.item_condition, s)]

    def others_pass(kind: type[Owner | ServiceAdmin]) -> bool:
        return any(not any(isinstance(atom, kind) for atom in atoms) for atoms in minimal_sets())

    claims: tuple[tuple[re.Pattern[str], Callable[[], bool], str], ...] = (
        (_UNFILTERED, lambda: _filters(view, rule), "items are left out"),
        (
            _OPEN,
            lambda: not view.implies(rule, rule.gate, required, unknown=True),
            "something is required of the caller",
        ),
        (_OWNERS, lambda: others_pass(Owner), "others pass too"),
        (_ADMINS, lambda: others_pass(ServiceAdmin), "others pass too"),
        (_NOTHING, lambda: bool(rule.effects), "it has effects"),
    )
    for said, wrong, fact in claims:
        match = said.search(note)
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
    """Return whether `each` requires more than the call does."""
    return rule.each is not None and not view.implies(rule, rule.call_condition, rule.each, unknown=True)


def _short(text: str) -> str:
    words = text.strip().split()
    return " ".join(words) if len(words) <= 16 else " ".join([*words[:5], "…", *words[-4:]])


@check("P318", Severity.WARNING)
def unsettled_ambiguity(policy: m.Policy) -> Iterator[Found]:
    """Rows with `ambiguous` but without readings or without `why`; each once."""
    for row in declared(policy):
        ambiguous = row.decl.ambiguous
        if ambiguous is None:
            continue
        if not ambiguous.readings:
            message = f"the row `{row.operation}` is ambiguous, but records no other reading"
            advice = "write the other readings under `readings`, or drop `ambiguous`"
        elif not (ambiguous.why or "").strip():
            message = f"the row `{row.operation}` does not say why its reading was chosen"
            advice = "add `why: …`"
        else:
            continue
        yield Found(row.decl.span, message, advice)


@check_in_every_type("P329", Severity.NOTE)
def equal_reading(policy: m.Policy) -> Iterator[FoundInRow]:
    """Readings that mean exactly the same as the row or as another of its readings, effects included."""
    view = view_of(policy)
    for row in policy.rows.values():
        earlier: list[tuple[str, Rule]] = [("the row itself", view.rule(row))]
        for reading, other in view.alternative_rows.readings(row):
            rule = view.lowering.rule(other)
            name = reading.name.value
            equal_reading = next(
                (description for description, earlier_rule in earlier if compare(view, rule, earlier_rule).equal), None
            )
            earlier.append((f"the reading `{name}`", rule))
            if equal_reading is not None and f"{row.entity}/{row.operation}" not in policy.chosen:
                yield (
                    row,
                    reading.name.span,
                    f"the reading `{name}` means the same as {equal_reading}",
                    "drop it, or write what it was meant to say: choosing it changes no answer",
                )


@check("P339", Severity.WARNING)
def one_cell_two_meanings(policy: m.Policy) -> Iterator[Found]:
    """Rows of a type with the very same `source` that allow different callers or have different effects.

    Rows with a `note` or `ambiguous` are skipped, since the difference is known; so are rows whose sources differ in
    any line.
    """
    view = view_of(policy)
    first: dict[tuple[str, tuple[tuple[str | None, int | None], ...]], m.Row] = {}
    for row in policy.rows.values():
        decl = row.decl
        if row.origin != "row" or not decl.source or decl.note is not None or decl.ambiguous is not None:
            continue
        if any(ref.line is None for ref in decl.source):
            continue
        earlier = first.setdefault((row.entity, tuple((ref.name, ref.line) for ref in decl.source)), row)
        if earlier is row or earlier.decl.body is decl.body:
            continue
        comparison = compare(view, view.rule(row), view.rule(earlier))
        if comparison.equal or comparison.breadth == "unknown":
            continue
        yield Found(
            decl.span,
            f"`{row.operation}` and `{earlier.operation}` come from one line of the document, but differ",
            "correct one of them, or explain in a `note` why they differ",
            related=(Located("the other row", earlier.decl.span),),
        )
