"""`privtab who-can`: list who may do an operation on an entity, and through which grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import Request, UsageError, count
from privtab.command import QuestionOptions, argument, err, fail_if, option, out, print_if_data, table
from privtab_analysis.commands import _ask as ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab_analysis.principals import WhoCan

PANEL = "Ask"

MOST_LINES = 40
"""Default maximum of lines shown as text."""


By = Literal["user", "principal"]
"""The kinds of entries in a list."""


def run(
    operation: Annotated[str, argument("OP", "The operation.", kind="OPERATION")],
    resource: Annotated[str, argument("ENTITY", "The entity, as type:path (table:demo/hive/sales/orders).")],
    *,
    with_: ask.WithOption = None,
    by: Annotated[
        By, option("--by", "List users, or principals that suffice alone: groups, roles, users themselves.")
    ] = "user",
    limit: Annotated[int | None, ask.limit_option("lines", MOST_LINES)] = None,
    asked: QuestionOptions,
    format_: ask.TableFormatOption = "text",
) -> None:
    """List every user who may do an operation on an entity, and through which role, group, grant or ownership.

    Example:
      privtab who-can drop table:demo/hive/sales/orders -p gravitino/1.1.0 -s sample:gravitino
      privtab who-can drop table:demo/hive/sales/orders --by principal \\
              -p gravitino/1.1.0 -s sample:gravitino
    """
    from privtab.reference import Reference
    from privtab_analysis.entitlements.universe import asked_entities
    from privtab_analysis.entitlements.universe import notes as unknown
    from privtab_analysis.principals import who_can as find_who_can

    if ":" in operation and ":" not in resource:
        raise UsageError(f"`{operation}` is not an operation: write `who-can OP ENTITY`, the operation first")
    program = asked.program()
    carried = ask.given(with_, program)
    if carried.attributes:
        raise UsageError("the attributes of callers differ: `explain` and `filter` take them for one user")
    request = Request(
        user="", action=operation, resource=ask.entity(resource), with_=carried.objects, flags=carried.flags
    )
    loaded, _, partial = asked.rows(program)
    with err().spinner("looking for principals", after=1.0):
        found = find_who_can(Reference(program, loaded), loaded, request)
    notes = unknown(program, loaded, entities=asked_entities(program, request))
    most = ask.shown_number(limit, format_, MOST_LINES)
    if by == "user":
        _users(found, format_, most or len(found.users), notes)
    else:
        _principals(found, format_, most, notes)
    if format_ != "json":
        ask.show_notes(notes)
    fail_if(partial)


def _users(found: WhoCan, format_: ask.TableFormat, most: int, notes: Sequence[str]) -> None:
    from privtab_analysis.principals import evidence_text

    users = found.users[:most]
    if format_ == "text":
        _show_users(found, users)
        return
    listed = [{"user": user, "through": () if found.anyone else found.through(user)} for user in users]
    answer = {**_question_json(found), "anyone": found.anyone, "count": len(found.users), "users": listed}
    answer |= {"except": list(found.excepted)} if found.excepted else {}
    rows = ((user, "anyone" if found.anyone else evidence_text(found.through(user))) for user in users)
    print_if_data(format_, {**answer, "notes": notes}, ("user", "through"), rows)


def _question_json(found: WhoCan) -> dict[str, Any]:
    from privtab_analysis.answer_view import rule_json

    request = found.request
    return {
        "operation": request.action,
        "entity": str(request.resource),
        "with": {name: str(object_) for name, object_ in sorted(request.with_.items())},
        "flags": sorted(request.flags),
        "rule": rule_json(found.rule),
    }


def _show_users(found: WhoCan, users: tuple[str, ...]) -> None:
    from privtab_analysis.principals import evidence_text

    console = out()
    _heading(found)
    if found.anyone:
        but = f", but for {count(len(found.excepted), 'user')} of {len(found.known):,}" if found.excepted else ""
        console.print(f"anyone may, named in the state or not{but}")
        for user in console.first(found.excepted, MOST_LINES, apart=True):
            console.print(f"  {user}")
        return
    console.print(f"{count(len(found.users), 'user')} of {len(found.known | set(found.users)):,}", style="dim")
    if users:
        console.print()
        lines = ((user, evidence_text(found.through(user))) for user in users)
        console.print(table("user", "through", rows=lines))
    console.more(len(found.users) - len(users), apart=True)


def _principals(found: WhoCan, format_: ask.TableFormat, most: int, notes: Sequence[str]) -> None:
    principals = found.principals()
    listed = principals[: most or len(principals)]
    lines = [(p.principal, p.scope or "", " or ".join(" and ".join(way) for way in p.needs)) for p in listed]
    answer = {**_question_json(found), "count": len(principals), "principals": listed, "notes": notes}
    if print_if_data(format_, answer, ("principal", "scope", "needs"), lines):
        return
    console = out()
    _heading(found)
    enough = sum(() in p.needs for p in principals)
    console.print(f"{count(len(principals), 'principal')}, {enough:,} of them enough alone", style="dim")
    if lines:
        console.print()
        shown = table(*("principal", *(("within",) if any(s for _, s, _ in lines) else ()), "besides"))
        for one, (principal, scope, _) in zip(listed, lines, strict=True):
            shown.add_row(principal, *((scope,) if any(s for _, s, _ in lines) else ()), one.besides())
        console.print(shown)
    console.more(len(principals) - len(listed), apart=True)


def _heading(found: WhoCan) -> None:
    from privtab_analysis.answer_view import besides

    console = out()
    request = found.request
    console.print(f"who can {request.action} {request.resource}{besides(request)}", style="bold")
    console.print(f"rule {found.rule.id}  {found.rule.span.path}:{found.rule.span.line}", style="dim")
