"""Formats policies and scenario files; keeps the values, their order, comments and blank lines.

Each file goes from a YAML tree and comments to the nodes of `attach` (each comment at a node), to lines, to text. The text
is parsed again and compared with the first tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from privtab.base.diagnostics import Diagnostic
from privtab.base.errors import FormatError
from privtab.base.source import SourceFile
from privtab.language.fmt.attach import attach
from privtab.language.fmt.layout import lay_out
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode, comments, compose_yaml

__all__ = ["format_source", "is_policy", "yaml_files"]


def format_source(source: SourceFile) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Return the formatted text; None with findings if it is invalid YAML, or YAML that policies do not use.

    Raises FormatError if the result would have another meaning, which is a defect of this package.
    """
    found: list[Diagnostic] = []
    root = compose_yaml(source, found)
    if root is None or found:
        return None, tuple(sorted(set(found)))
    notes = [source.text[start:end].rstrip() for start, end in comments(source.text)]
    text = lay_out(attach(source, root))
    _check_unchanged(root, notes, SourceFile.of(source.path, text))
    return text, ()


def _check_unchanged(root: YamlNode, notes: list[str], result: SourceFile) -> None:
    found: list[Diagnostic] = []
    reparsed = compose_yaml(result, found)
    if found or reparsed is None or not _equal(root, reparsed):
        raise FormatError(f"{result.path} cannot be laid out without another meaning; it stays as it is")
    remaining = [result.text[start:end] for start, end in comments(result.text)]
    if Counter(notes) != Counter(remaining):
        raise FormatError(f"{result.path} cannot be laid out without losing a comment; it stays as it is")


def _equal(node: YamlNode, other: YamlNode) -> bool:
    match node, other:
        case ScalarNode(), ScalarNode():
            return node.text == other.text and (node.value == other.value or node.value != node.value)
        case SequenceNode(), SequenceNode():
            return len(node.items) == len(other.items) and all(map(_equal, node.items, other.items))
        case MappingNode(), MappingNode():
            return len(node.entries) == len(other.entries) and all(
                _equal(a[0], b[0]) and _equal(a[1], b[1]) for a, b in zip(node.entries, other.entries, strict=True)
            )
        case _:
            return False


MARKS = ("privtab:", "scenarios:")
"""The keys, at the start of a line, that mark a YAML file as a policy or a scenario file."""


def yaml_files(folder: Path) -> Iterator[Path]:
    """The policies and scenario files below a folder, sorted."""
    for path in sorted(folder.rglob("*.y*ml")):
        if path.suffix in {".yaml", ".yml"} and path.is_file() and has_mark(path):
            yield path


def has_mark(path: Path) -> bool:
    """Return whether a file has one of the keys; true for unreadable files, so that they are reported."""
    try:
        with path.open(encoding="utf-8") as lines:
            return any(line.startswith(MARKS) for line in lines)
    except (OSError, UnicodeDecodeError):
        return True


def is_policy(lines: Iterable[str]) -> bool:
    """Return whether a text is a policy."""
    return any(line.startswith(MARKS[0]) for line in lines)
