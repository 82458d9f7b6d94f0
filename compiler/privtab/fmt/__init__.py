"""Formats policies and scenario files; keeps the values, their order, comments and blank lines.

Each file goes from a YAML tree and comments to `nodes` (each comment attached to a node), to lines, to text. The text
is parsed again and compared with the first tree.
"""

from __future__ import annotations

from collections import Counter

from privtab.diagnostics import Diagnostic, in_order
from privtab.errors import FormatError
from privtab.fmt.attach import attach
from privtab.fmt.layout import lay_out
from privtab.source import SourceFile
from privtab.syntax.comments import comments
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence, compose

__all__ = ["format_source"]


def format_source(source: SourceFile) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Return the formatted text; None with findings if it is invalid YAML, or YAML that policies do not use.

    Raises FormatError if the result would have another meaning, which is a defect of this package.
    """
    found: list[Diagnostic] = []
    root = compose(source, found)
    if root is None or found:
        return None, in_order(found)
    notes = [source.text[start:end].rstrip() for start, end in comments(source.text)]
    text = lay_out(attach(source, root))
    _hold_against(root, notes, SourceFile.of(source.path, text))
    return text, ()


def _hold_against(root: Node, notes: list[str], result: SourceFile) -> None:
    found: list[Diagnostic] = []
    again = compose(result, found)
    if found or again is None or not _same(root, again):
        raise FormatError(f"{result.path} cannot be laid out without another meaning; it stays as it is")
    kept = [result.text[start:end] for start, end in comments(result.text)]
    if Counter(notes) != Counter(kept):
        raise FormatError(f"{result.path} cannot be laid out without losing a comment; it stays as it is")


def _same(one: Node, other: Node) -> bool:
    match one, other:
        case Scalar(), Scalar():
            return one.text == other.text and (one.value == other.value or one.value != one.value)
        case Sequence(), Sequence():
            return len(one.items) == len(other.items) and all(map(_same, one.items, other.items))
        case Mapping(), Mapping():
            return len(one.entries) == len(other.entries) and all(
                _same(a[0], b[0]) and _same(a[1], b[1]) for a, b in zip(one.entries, other.entries, strict=True)
            )
        case _:
            return False
