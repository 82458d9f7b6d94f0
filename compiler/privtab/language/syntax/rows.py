"""Read rows, in the short and in the long form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from privtab.base.diagnostics import Located
from privtab.base.effects import EffectKind
from privtab.base.lazy import pattern
from privtab.base.sql_text import FILTER_KINDS, operation_of
from privtab.language.findings import unreadable, unsound_rows
from privtab.language.syntax import nodes
from privtab.language.syntax.keys import NAME
from privtab.language.syntax.reader import Fields, PolicyReader
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode

_NAME = pattern(NAME)
_SOURCE = pattern(r"(?:(?P<name>[^:]+):)?(?P<line>[0-9]+)")


def read_rows(reader: PolicyReader, node: YamlNode, what: str, *, kind: str = "row") -> tuple[nodes.RowDecl, ...]:
    """The rows of one table. An operation may be repeated here; a later stage reports that."""
    if not isinstance(node, MappingNode):
        reader.wrong(node, what, "a mapping of operations")
        return ()
    rows: list[nodes.RowDecl] = []
    for key, value in reader.cut_cells(node):
        mistakes_before = reader.mistakes
        operations = _operations(reader, key)
        row = _read_row(reader, value, key, kind) if operations else None
        if row is not None:
            poisoned = reader.mistakes > mistakes_before
            if not poisoned and operations == [row.operation]:
                rows.append(row)
                continue
            rows.extend(
                replace(row, operation=operation, span=operation.span, poisoned=poisoned) for operation in operations
            )
    return tuple(rows)


def read_filters(reader: PolicyReader, fields: Fields) -> Iterator[nodes.RowDecl]:
    """The row filters and column masks of a type, as rows of operations of their own, in the order in which they are tried."""
    for kind in FILTER_KINDS:
        if f"{kind}s" not in fields:
            continue
        node = fields[f"{kind}s"][1]
        if not (isinstance(node, MappingNode) and node.entries):
            advice = f'write `{kind}s: {{NAME: {{requires: CONDITION, sql: "TRUE"}}}}`'
            reader.wrong(node, f"`{kind}s`", "a mapping of names", advice)
            continue
        for key, value in reader.entries(node, f"`{kind}s`"):
            mistakes_before = reader.mistakes
            name = reader.name(key, f"a {kind.replace('_', ' ')}", "name")
            row = _read_row(reader, value, key, "filter") if isinstance(value, MappingNode) else None
            if row is None:
                reader.wrong(value, f"`{key.text}`", "a mapping", "write `{requires: CONDITION, sql: TEXT}`")
            elif name is not None:
                operation = Located(operation_of(kind, name.value), name.span)
                yield replace(row, operation=operation, poisoned=reader.mistakes > mistakes_before)


def _operations(reader: PolicyReader, key: ScalarNode) -> list[nodes.Word]:
    operations: list[nodes.Word] = []
    for word in reader.split(key, ","):
        if _NAME.fullmatch(word.value):
            operations.append(word)
        else:
            several = unreadable.several(word.value)
            advice = f"one row for several operations has commas between them: `{', '.join(several)}`"
            reader.take(
                unreadable.bad_name_of_request(word.span, "an operation", word.value, advice if several else None)
            )
            names = several or (unreadable.as_name(word.value),)
            operations.extend(Located(name, word.span) for name in names)
    if not operations and not key.text.strip(" ,"):
        reader.take(unreadable.bad_name_of_request(reader.span(key), "an operation", key.text))
    return operations


def _read_row(reader: PolicyReader, node: YamlNode, key: ScalarNode, kind: str) -> nodes.RowDecl:
    name = Located(key.text, reader.span(key))
    if node.empty:
        reader.take(unsound_rows.row_without_condition(name.span, key.text))
        return nodes.RowDecl(operation=name, body=nodes.RowBody(), span=name.span)
    if not isinstance(node, MappingNode):
        if isinstance(node, SequenceNode):
            reader.wrong(node, f"the row `{key.text}`", "a condition or a mapping")
            return nodes.RowDecl(operation=name, body=nodes.RowBody(), span=name.span)
        body = nodes.RowBody(requires=reader.condition(node, f"the row `{key.text}`"), plain=True)
        return nodes.RowDecl(operation=name, body=body, span=name.span)
    mistakes_before = reader.mistakes
    fields = reader.fields(node, kind, "a row" if kind != "filter" else "a filter") or {}
    body = read_body(reader, fields)
    if body.requires is None and body.each is None and reader.mistakes == mistakes_before:
        reader.take(unsound_rows.row_without_condition(name.span, key.text))
    return nodes.RowDecl(
        operation=name,
        body=body,
        span=name.span,
        title=reader.optional_text(fields, "title"),
        withs=tuple(_withs(reader, fields["with"][1])) if "with" in fields else (),
        flags=tuple(_flags(reader, fields["flags"][1])) if "flags" in fields else (),
        ungated="gate" in fields and reader.choice(fields["gate"][1], "none", "`gate` of a row") == "none",
        creates=reader.flag(fields["creates"][1], "`creates`") if "creates" in fields else None,
        destructive=_is_declared(reader, fields, "destructive"),
        sensitive=_is_declared(reader, fields, "sensitive"),
        note=reader.optional_text(fields, "note"),
        source=read_source(reader, fields["source"][1]) if "source" in fields else (),
        ambiguous=_ambiguous(reader, fields["ambiguous"][1], body) if "ambiguous" in fields else None,
        deprecated=read_deprecated(reader, fields),
        renamed_from=reader.former_name(fields, "an operation", "name"),
        sql=reader.cell(fields["sql"][1], "`sql`", "text", "put it in quotes") if "sql" in fields else None,
        for_types=(reader.words(fields["for"][1], "`for`") or ()) if "for" in fields else None,
    )


def read_body(reader: PolicyReader, fields: Fields) -> nodes.RowBody:
    """Read the conditions and effects of a row or a reading."""
    report = reader.choice(fields["report"][1], "report", "`report`") if "report" in fields else None

    def effects(key: str, kind: EffectKind) -> tuple[nodes.EffectCell, ...] | None:
        return tuple(reader.effects(fields[key][1], kind, f"`{key}`")) if key in fields else None

    return nodes.RowBody(
        requires=reader.condition(fields["requires"][1], "`requires`") if "requires" in fields else None,
        each=reader.condition(fields["each"][1], "`each`") if "each" in fields else None,
        report=None if report is None else Located(report, reader.span(fields["report"][1])),
        grants=effects("grants", "grant"),
        becomes=effects("becomes", "become"),
        revokes=effects("revokes", "revoke"),
        delegates=effects("delegates", "delegate"),
        withdraws=effects("withdraws", "withdraw"),
    )


def read_deprecated(reader: PolicyReader, fields: Fields) -> str | None:
    """`deprecated: use X`, or `true`."""
    if "deprecated" not in fields:
        return None
    node = fields["deprecated"][1]
    if isinstance(node, ScalarNode) and isinstance(node.value, bool):
        return "deprecated" if node.value else None
    return reader.text(node, "`deprecated`")


def read_source(reader: PolicyReader, node: YamlNode) -> tuple[nodes.SourceRef, ...]:
    """`15`, `name:15`, `{source: name, line: 15}`, or a list of these."""
    if isinstance(node, SequenceNode):
        return tuple(ref for item in node.items for ref in read_source(reader, item))
    span = reader.span(node)
    if isinstance(node, MappingNode):
        fields = reader.fields(node, "row place", "a source")
        if fields is None or "line" not in fields:
            return ()
        line = fields["line"][1]
        name = reader.optional_text(fields, "source")
        match line:
            case ScalarNode(value=int(number)) if not isinstance(line.value, bool):
                return (nodes.SourceRef(name=name, line=number, span=span),)
            case _:
                reader.wrong(line, "`line`", "a line number")
                return ()
    if not isinstance(node.value, bool | float):
        match = _SOURCE.fullmatch(node.text.strip())
        if match:
            return (nodes.SourceRef(name=match["name"], line=int(match["line"]), span=span),)
        if node.value is not None:
            advice = "a line number, or `name:line`, as in `source: final:15`"
            reader.refuse(span, f"`{node.text}` is not a position in a source", advice)
            return ()
    reader.wrong(node, "`source`", "a line number or `name:line`")
    return ()


def _withs(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.WithDecl]:
    for key, value in reader.entries(node, "`with`", "write `with: {NAME: TYPE}`"):
        name = reader.name(key, "a `with` object", "snake")
        types = reader.words(value, f"`{key.text}`")
        if name is None or types is None:
            reader.lost.add(key.text)
            continue
        any_ = len(types) == 1 and types[0].value == "any"
        yield nodes.WithDecl(name=name, types=None if any_ else types, types_span=reader.span(value))


def _flags(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.FlagDecl]:
    for key, value in reader.entries(node, "`flags`"):
        name = reader.name(key, "a flag", "name")
        word = reader.choice(value, "saying", f"the flag `{key.text}`")
        if name is not None and word is not None:
            yield nodes.FlagDecl(name=name, required=word == "required")


def _ambiguous(reader: PolicyReader, node: YamlNode, body: nodes.RowBody) -> nodes.AmbiguousDecl | None:
    fields = reader.fields(node, "ambiguous", "`ambiguous`")
    if fields is None:
        return None
    readings: list[nodes.Reading] = []
    if "readings" in fields:
        for key, value in reader.entries(fields["readings"][1], "`readings`"):
            name = reader.name(key, "a reading")
            reading = _reading(reader, value, key, body)
            if name is not None and reading is not None:
                readings.append(nodes.Reading(name=name, text=reading[0], body=reading[1]))
    return nodes.AmbiguousDecl(
        cell=reader.optional_text(fields, "cell"), readings=tuple(readings), why=reader.optional_text(fields, "why")
    )


def _reading(
    reader: PolicyReader, node: YamlNode, key: ScalarNode, body: nodes.RowBody
) -> tuple[str, nodes.RowBody] | None:
    """The text of a reading, and the body with which it replaces the row's; a condition replaces `each` if the row has only that."""
    if isinstance(node, MappingNode):
        fields = reader.fields(node, "reading", "a reading")
        if fields is None:
            return None
        if not fields:
            reader.take(unreadable.wrong_type(reader.span(node), "a reading", "a condition or a row", "empty"))
        text = "; ".join(f"{name}: {_plain(value)}" for name, (_, value) in fields.items())
        return text, read_body(reader, fields)
    condition = reader.condition(node, f"the reading `{key.text}`")
    if condition is None:
        return None
    if body.each is not None and body.requires is None:
        return condition.cell.line, nodes.RowBody(each=condition, plain=True)
    return condition.cell.line, nodes.RowBody(requires=condition, plain=True)


def _plain(node: YamlNode) -> str:
    match node:
        case ScalarNode():
            return " ".join(node.text.split())
        case SequenceNode():
            return ", ".join(_plain(item) for item in node.items)
        case MappingNode():
            return ", ".join(f"{key.text}: {_plain(value)}" for key, value in node.entries)


def _is_declared(reader: PolicyReader, fields: Fields, key: str) -> bool:
    flag = reader.flag(fields[key][1], f"`{key}`") if key in fields else None
    return flag is not None and flag.value
