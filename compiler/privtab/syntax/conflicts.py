"""`conflicts`: operations that no one role may hold together."""

from __future__ import annotations

from privtab.findings import misspelt
from privtab.syntax.nodes import ConflictDecl, Word
from privtab.syntax.reader import PolicyReader
from privtab.syntax.yaml_tree import Node, Scalar, Sequence


def read_conflicts(reader: PolicyReader, node: Node) -> tuple[ConflictDecl, ...]:
    """Read every entry of the list; an entry that cannot be read leaves a finding."""
    if not isinstance(node, Sequence):
        reader.wrong(node, "`conflicts`", "a list", "write `- {operations: [TYPE/OPERATION, TYPE/OPERATION]}`")
        return ()
    return tuple(decl for item in node.items if (decl := _conflict(reader, item)) is not None)


def _conflict(reader: PolicyReader, node: Node) -> ConflictDecl | None:
    fields = reader.fields(node, "conflict", "a conflict")
    if fields is None:
        return None
    why = reader.text(fields["why"][1], "`why`") if "why" in fields else None
    at_most = _count(reader, fields["at_most"][1]) if "at_most" in fields else 1
    operations = _operations(reader, fields["operations"][1]) if "operations" in fields else None
    if operations is None or at_most is None:
        return None
    if len(operations) <= at_most:
        message = f"{len(operations)} operation{'s' if len(operations) != 1 else ''}, of which {at_most} may be held"
        advice = "name two at least, and more than `at_most`"
        reader.take(misspelt.wrong_value_other(reader.span(fields["operations"][1]), message, advice))
        return None
    return ConflictDecl(operations=operations, at_most=at_most, span=operations[0].span, why=why)


def _count(reader: PolicyReader, node: Node) -> int | None:
    match node:
        case Scalar(value=int(number)) if not isinstance(node.value, bool) and number >= 1:
            return number
        case Scalar(value=int()) if not isinstance(node.value, bool):
            message = f"`{node.text}` operations cannot be held"
            reader.take(misspelt.wrong_value_other(reader.span(node), message, "a number from 1 on; left off, it is 1"))
        case _:
            reader.wrong(node, "`at_most`", "a number")
    return None


def _operations(reader: PolicyReader, node: Node) -> tuple[Word, ...] | None:
    """The operations, written as `TYPE/OPERATION`, without duplicates; names are resolved later."""
    words = reader.words(node, "`operations`")
    if words is None:
        return None
    valid: dict[str, Word] = {}
    mistakes_before = reader.mistakes
    for word in words:
        type_, slash, operation = word.value.partition("/")
        if not (type_ and slash and operation) or "/" in operation:
            advice = "an operation of a type is written `TYPE/OPERATION`"
            reader.take(misspelt.wrong_value_other(word.span, f"`{word.value}` is not an operation", advice))
        elif word.value in valid:
            reader.take(
                misspelt.wrong_value_other(word.span, f"`{word.value}` occurs twice", "name another, or drop it")
            )
        else:
            valid[word.value] = word
    return tuple(valid.values()) if reader.mistakes == mistakes_before else None
