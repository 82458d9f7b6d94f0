"""Waivers: changes that are approved until a date, read from a file with the position of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import ClassVar

from privtab.base import Diagnostic, FindingKind, Severity, SourceFile, Span, dataclass
from privtab.language import DocumentProblem, DocumentReader, YamlNode, compose_yaml
from privtab_analysis.diff.nodes import OPERATION_VERDICTS, Diff, Verdict, Waiver

_HEAD_HINT = "a file of waivers begins with `waivers:`, and a list below"
KEYS = ("operation", "change", "who", "why", "until")
"""The required keys of a waiver; `system` is optional."""
CHANGES = tuple(verdict for verdict in OPERATION_VERDICTS if verdict is not Verdict.EQUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waivers:
    """The valid waivers of a file, and findings about the others."""

    waivers: tuple[Waiver, ...] = ()
    found: tuple[Diagnostic, ...] = ()


def read_waivers(source: SourceFile) -> Waivers:
    """Read every waiver of a file; one that is incomplete or invalid is an error at its line."""
    found: list[Diagnostic] = []
    root = compose_yaml(source, found, _HEAD_HINT)
    reader = _WaiverReader(source, found)
    waivers = (
        [] if root is None else [waiver for node in reader.listed(root) if (waiver := reader.waiver(node)) is not None]
    )
    return Waivers(waivers=tuple(waivers), found=tuple(sorted(set(found))))


class _WaiverReader(DocumentReader):
    """The reader of a file of waivers."""

    NAMES: ClassVar = {"D201": "bad-waiver"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "D201")

    def example(self, key: str) -> str | None:
        """See `DocumentReader.example`."""
        return _ADVICE.get(key)

    def listed(self, root: YamlNode) -> Iterable[YamlNode]:
        """The nodes of the list `waivers`."""
        fields = self.fields(root, "a file of waivers", ("waivers",), required=("waivers",))
        return () if fields is None else self.items(fields["waivers"], "`waivers`")

    def waiver(self, node: YamlNode) -> Waiver | None:
        """Read one waiver."""
        before = self.mistakes
        nodes = self.fields(node, "a waiver", (*KEYS, "system"), required=KEYS)
        if nodes is None:
            return None
        texts = {key: self.required_text(key, value) for key, value in nodes.items()}
        operation, change, until = (texts.get(key) for key in ("operation", "change", "until"))
        if operation is not None and operation.count("/") != 1:
            self.report("D201", nodes["operation"], f"`{operation}` is not an operation", _ADVICE["operation"])
        if change is not None:
            self.word(nodes["change"], "`change`", [str(verdict) for verdict in CHANGES])
        day = None if until is None else self.day(nodes["until"], until)
        if self.mistakes > before or day is None:
            return None
        return Waiver(
            operation=str(operation),
            change=Verdict(str(change)),
            who=str(texts["who"]),
            why=str(texts["why"]),
            until=day,
            span=self.source.span(node.start, node.end),
            system=texts.get("system"),
        )

    def required_text(self, key: str, node: YamlNode) -> str | None:
        """A non-empty text, on one line."""
        text = self.text(node, f"`{key}`")
        if text is not None and not text.value.strip():
            self.report("D201", node, f"`{key}` is empty", _ADVICE.get(key))
            return None
        return None if text is None else " ".join(text.value.split())

    def day(self, node: YamlNode, text: str) -> date | None:
        """A date in ISO 8601."""
        try:
            return date.fromisoformat(text)
        except ValueError:
            self.report("D201", node, f"`{text}` is not a date", _ADVICE["until"])
            return None


_ADVICE = {
    "operation": "write it as entity/operation, such as `table/load`",
    "waivers": "write `waivers:` and a list below",
    "change": f"it is one of {', '.join(map(str, CHANGES))}",
    "who": "name who answers for the change",
    "why": "say why the change is meant",
    "until": "write the last day that it holds, such as `2030-12-31`",
}


def apply_waivers(
    diffs: Sequence[Diff], waivers: Sequence[Waiver], today: date
) -> tuple[tuple[Diff, ...], tuple[Diagnostic, ...]]:
    """Return the diffs with waived rows marked, and a warning for each waiver that has expired or matches no change."""
    valid = [waiver for waiver in waivers if waiver.until >= today]
    used: set[Span] = set()
    marked: list[Diff] = []
    for diff in diffs:
        rows = []
        for row in diff.rows:
            waiver = next((candidate for candidate in valid if candidate.covers(diff.after.system, row)), None)
            if waiver is not None:
                used.add(waiver.span)
            rows.append(row if waiver is None else replace(row, waived=waiver))
        marked.append(replace(diff, rows=tuple(rows)))
    expired = [_expired(waiver) for waiver in waivers if waiver.until < today]
    unused = [_unused(waiver) for waiver in valid if waiver.span not in used]
    return tuple(marked), tuple(sorted({*expired, *unused}))


def _expired(waiver: Waiver) -> Diagnostic:
    kind = FindingKind("D202", "expired-waiver", Severity.WARNING)
    message = f"the waiver for `{waiver.operation}` held until {waiver.until}"
    return kind.at(waiver.span, message, f"ask {waiver.who}, then extend or remove the waiver")


def _unused(waiver: Waiver) -> Diagnostic:
    kind = FindingKind("D203", "unused-waiver", Severity.WARNING)
    message = f"nothing makes `{waiver.operation}` {waiver.change} here"
    return kind.at(waiver.span, message, "remove the waiver after the change is merged")


def failing(diff: Diff, verdicts: Collection[Verdict]) -> bool:
    """Return whether an operation changed in one of these ways without a waiver; an unknown change counts as any of them."""
    return any(
        row.waived is None and (row.verdict in verdicts or (verdicts and row.verdict is Verdict.UNKNOWN))
        for row in diff.changes
    )
