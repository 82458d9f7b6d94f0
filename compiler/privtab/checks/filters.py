"""Row filters and column masks that never apply, and texts that are no SQL: P348 and P349."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.base.diagnostics import Severity
from privtab.base.resources import needing
from privtab.base.sql_text import DIALECTS, Placeholder, operation_of, read
from privtab.checks._view import Found, check, view_of
from privtab.ir.nodes import Or
from privtab.model.nodes import Filter, Policy, TermUse


@check("P348", Severity.WARNING)
def filter_never_applied(policy: Policy) -> Iterator[Found]:
    """Filters behind others of which one holds wherever they do; compared exactly."""
    view = view_of(policy)
    for listed in view.program.filter_lists.values():
        rules = [view.program.rules[one.entity, one.operation] for one in listed]
        conditions = [rule.item_condition for rule in rules]
        for number, rule in enumerate(rules[1:], 1):
            if view.implies(rule, conditions[number], Or(parts=tuple(conditions[:number]))):
                row = policy.rows[rule.entity, rule.operation]
                name = listed[number].name
                message = f"`{name}` never applies: an earlier one holds wherever it does"
                yield Found(row.decl.span, message, "write it before that one, or drop it")


@check("P349", Severity.WARNING)
def unparsable_sql(policy: Policy) -> Iterator[Found]:
    """Texts that SQLGlot does not read as one expression of the dialect."""
    if not policy.filters:
        return  # loading SQLGlot takes longer than the rest of `lint`
    with needing("the SQL of a filter", "filter"):
        from sqlglot import exp, parse_one
        from sqlglot.errors import ParseError, SqlglotError
    for one in policy.filters:
        row = policy.rows[one.entity, operation_of(one.kind, one.name)]
        cell = row.decl.sql
        if cell is None:
            continue
        text = _with_values(cell.text, one, policy.tables.dialect or "")
        span, why = cell.span, "it is no expression"
        try:
            if not isinstance(parse_one(text, read=policy.tables.dialect, into=exp.Condition), exp.Star):
                continue
        except ParseError as error:
            details = error.errors[0]
            end = sum(len(line) + 1 for line in text.split("\n")[: details["line"] - 1]) + details["col"]
            span = cell.part(max(end - len(details["highlight"]), 0), end)
            why = str(details["description"]).partition(" for <class")[0]
        except (SqlglotError, ValueError) as error:
            why = str(error)
        message = f"the text of `{one.name}` is no expression in the dialect `{policy.tables.dialect}`"
        yield Found(span, message, f"the parser says: {why}")


def _with_values(text: str, filter_: Filter, dialect: str) -> str:
    """A text with an example in the place of each placeholder, of the same length."""
    placeholders = [part for part in read(text, dialect) if isinstance(part, Placeholder)]  # type: ignore[union-attr]
    uses = (part for part in filter_.parts if not isinstance(part, str))
    for placeholder, use in zip(placeholders, uses, strict=True):
        size = placeholder.end - placeholder.start
        text = text[: placeholder.start] + _example(use, size, dialect) + text[placeholder.end :]
    return text.replace("{{", "{ ").replace("}}", "} ")


def _example(use: Placeholder | TermUse, size: int, dialect: str) -> str:
    quote = DIALECTS[dialect].identifier
    type_ = use.words if isinstance(use, Placeholder) else use.type.type
    match type_:
        case "column":
            return f"{quote}{'x' * (size - 2)}{quote}"
        case "groups" | "set":
            return f"('{'x' * (size - 4)}')"
        case "bool":
            return "TRUE".ljust(size)
        case "integer":
            return "1".ljust(size)
        case _:
            return f"'{'x' * (size - 2)}'"
