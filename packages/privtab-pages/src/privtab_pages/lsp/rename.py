"""New names for types, privileges, sets and operations, in a policy and its scenarios: all places, and no change of meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from privtab.base import Diagnostic, PolicyInvalid, Severity, SourceFile, Span, UsageError, quoted_privilege
from privtab.pipeline import load_program
from privtab_pages.lsp.documents import Document, Documents, PolicyDocument
from privtab_pages.lsp.occurrences import Occurrence, joined, meet, same
from privtab_testing.scenarios import Case
from privtab_testing.scenarios.collect import plans

Edits: TypeAlias = Mapping[Span, str]
"""The texts that replace spans of one file."""


def rename(name: Occurrence, new: str, policy: PolicyDocument, documents: Documents) -> list[tuple[Document, Edits]]:
    """The edits that give a name of a valid policy another spelling.

    Raises UsageError if the policy or its scenarios would be invalid with the new name, or would mean something else.
    """
    if policy.program is None:
        raise UsageError(f"{policy.path.name} has errors: correct them first, so that a new name cannot hide others")
    places = same(name, policy.occurrences)
    if not any(place.declares for place in places):
        raise UsageError(f"`{name.name}` is not declared in {policy.path.name}")
    rows = () if policy.names is None else policy.names.tables.all_rows
    if name.kind == "type" and any(new == with_.name.value for row in rows for with_ in row.withs):
        raise UsageError(f"`{new}` is an object of requests already: in its rows, conditions would mean that")
    try:
        scenarios, others = documents.beside(policy)
        states = {state.path: state for document in scenarios for state in documents.states(document, policy)}
        foreign = {state.path: other.path for other in others for state in documents.states(other, policy)}
    except PolicyInvalid as error:
        raise UsageError(_because(error.diagnostics)) from None
    types = joined(place.types for place in places)
    edits: list[tuple[Document, Edits]] = [(policy, _edits(policy, places, new))]
    for document in (*scenarios, *states.values()):
        named = (o for o in document.occurrences if (o.kind, o.name) == (name.kind, name.name) and meet(types, o.types))
        edits.append((document, _edits(document, named, new)))
    for document, texts in edits:
        if texts and document.path in foreign:
            other = foreign[document.path].name
            raise UsageError(f"{document.path.name} is also the state of {other}, whose policy keeps `{name.name}`")
    _check(policy, edits, frozenset({name.name, new}))
    return [(document, texts) for document, texts in edits if texts]


def _edits(document: Document, places: Iterable[Occurrence], new: str) -> Edits:
    source = document.source
    written = ((place, source.text[slice(*_offsets(source, place.span))]) for place in places)
    return {place.span: _spelt(text, place, new) for place, text in written}


def _spelt(written: str, place: Occurrence, new: str) -> str:
    """The new name as a place writes the old one: in the same quotes, or in quotes where a condition needs them."""
    if written[:1] in ("'", '"') and written[-1:] == written[:1]:
        return f"{written[0]}{new}{written[0]}"
    in_condition = (
        place.kind in ("privilege", "set")
        and not place.declares
        and written == place.name == quoted_privilege(place.name)
    )
    return new if not in_condition or " " in place.name else quoted_privilege(new)


def _offsets(source: SourceFile, span: Span) -> tuple[int, int]:
    return (source.starts[span.line - 1] + span.column - 1, source.starts[span.end_line - 1] + span.end_column - 1)


def _edited(document: Document, edits: Edits) -> str:
    text = document.source.text
    for span in sorted(edits, reverse=True):
        start, end = _offsets(document.source, span)
        text = text[:start] + edits[span] + text[end:]
    return text


def _check(policy: PolicyDocument, edits: list[tuple[Document, Edits]], names: frozenset[str]) -> None:
    """Raise UsageError unless the policy and its scenarios mean the same with the edits, whichever variant applies."""
    variants = () if policy.names is None else tuple(variant.name.value for variant in policy.names.tables.variants)
    after = _meaning(policy, edits, variants, names)
    if after != _meaning(policy, [(document, {}) for document, _ in edits], variants, names):
        raise UsageError(
            "the policy or its scenarios would mean something else: the name has a meaning of its own, is taken, or scenarios "
            "use the old one in a way that has to be changed by hand"
        )


def _meaning(
    policy: PolicyDocument, edits: list[tuple[Document, Edits]], variants: Iterable[str], names: frozenset[str]
) -> Hashable:
    """The programs and the cases of a policy with some edits, in files of their own; names are one."""
    with TemporaryDirectory() as made:
        folder = Path(made).resolve()
        for document, texts in edits:
            path = folder / os.path.relpath(document.path, policy.path.parent)
            if not path.resolve().is_relative_to(folder):
                raise UsageError(f"{document.path} is not below the folder of the policy: rename by hand")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_edited(document, texts), encoding="utf-8", newline="")
        copy = folder / policy.path.name
        try:
            programs = [load_program(copy, variant=variant) for variant in (None, *variants)]
            cases = frozenset(_shape(_question(case), names) for plan in plans([copy]) for case in plan.cases)
        except PolicyInvalid as error:
            raise UsageError(_because(error.diagnostics)) from None
        return (_shape(tuple(programs), names), cases)


def _question(case: Case) -> tuple[object, ...]:
    """The question and the expected answer of a case, without the names of generated callers, which follow the order of other names."""
    request, expected = case.request, case.expected
    with_ = tuple(f"{name}={entity}" for name, entity in request.with_.items())
    asked = request.action, str(request.resource), with_, request.flags
    return (*asked, expected.allowed, expected.effects, expected.missing)


def _because(found: Iterable[Diagnostic]) -> str:
    error = next(finding for finding in found if finding.severity is Severity.ERROR)
    return f"{Path(error.span.path).name}:{error.span.line}: {error.message}"


_WORDING = frozenset({"span", "id", "title", "requires_text", "each_text", "note", "ambiguous", "gate_text"})
"""Fields of programs that say where and how something is written."""


def _shape(value: Any, names: frozenset[str]) -> Hashable:
    """A program without positions and wording, in which some names are one."""
    if isinstance(value, str):
        return re.sub(rf"(?<![\w.\-])(?:{'|'.join(map(re.escape, names))})(?![\w.\-])", "", value)
    if isinstance(value, Mapping):
        return tuple((_shape(key, names), _shape(item, names)) for key, item in value.items())
    if isinstance(value, frozenset):
        return frozenset(_shape(item, names) for item in value)
    if isinstance(value, tuple):
        return tuple(_shape(item, names) for item in value)
    if is_dataclass(value):
        own = (f.name for f in fields(value) if f.compare and f.name not in _WORDING)
        return (type(value).__name__, *((name, _shape(getattr(value, name), names)) for name in own))
    return value if isinstance(value, Hashable) else repr(value)
