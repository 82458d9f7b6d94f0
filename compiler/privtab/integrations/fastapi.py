"""FastAPI: a dependency that asks before the handler runs, and answers for guarded functions further down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from privtab.errors import DecisionError, UsageError
from privtab.integrations._answers import Answer, Tell, answer
from privtab.integrations._caller import as_caller
from privtab.integrations._guard import GUARD, AnyAsker, Guard
from privtab.integrations._needs import Needs, Place, needs
from privtab.request import Decision

try:
    from fastapi import Depends, FastAPI, HTTPException, Request, Response
except ImportError:  # pragma: no cover  (it is there wherever tests run)
    raise UsageError("privtab.integrations.fastapi needs FastAPI: pip install fastapi") from None

__all__ = ["Requires", "answer_errors"]


def Requires(  # noqa: N802  (it stands where FastAPI's `Depends` and `Security` stand)
    action: str,
    resource: Place,
    *,
    arg: str | None = None,
    with_: Mapping[str, Place] | None = None,
    flags: Iterable[str] = (),
    guard: Guard | AnyAsker = GUARD,
    user: Callable[..., Any] | None = None,
    tell: Tell | str = Tell.REASONS,
) -> Callable[..., Awaitable[Decision]]:
    """A dependency that gives the decision of an allow, and answers in the handler's place where there is none.

    `Depends(Requires("load", "table", arg="table_id", user=current_user))`: arguments are those of the path, then of the
    query. `user` is a dependency of yours that gives a name, a Caller or None; left out it is who the guard says. `guard`
    is a Guard or a client. What the handler converts (a number, another case) is better guarded by `@requires`, which sees
    what the handler gets. 403 for a denial, with as much as `tell` says; 401 for nobody, 400, 503 and 500 for no answer.
    """
    wanted = needs(action, resource, arg, with_, flags)
    behind = guard if isinstance(guard, Guard) else Guard(guard)
    told = Tell(tell)

    async def nobody_said() -> Any:
        return behind.caller()

    async def permitted(request: Request, asked_by: Any = Depends(user or nobody_said)) -> Decision:  # noqa: B008  (how FastAPI is told)
        try:
            return await behind.aask(as_caller(asked_by), wanted, _values(wanted, request))
        except DecisionError as error:
            raise Refused(answer(error, told)) from error

    return permitted


class Refused(HTTPException):
    """What `Requires` answers: `detail` is a sentence, as FastAPI's errors have it; with `answer_errors`, a problem document."""

    def __init__(self, refusal: Answer) -> None:
        sentence = refusal.problem.get("detail", refusal.problem["title"])
        super().__init__(refusal.status, sentence, dict(refusal.headers))
        self.refusal = refusal


def answer_errors(app: FastAPI, *, tell: Tell | str = Tell.REASONS) -> None:
    """Answer with problem documents where `Requires`, a handler, or a function below it refuses or has no decision."""
    told = Tell(tell)

    async def handle(_: Request, error: Exception) -> Response:
        assert isinstance(error, DecisionError | Refused)
        refusal = error.refusal if isinstance(error, Refused) else answer(error, told)
        return Response(refusal.body, refusal.status, dict(refusal.fields()))

    app.add_exception_handler(DecisionError, handle)
    app.add_exception_handler(Refused, handle)


def _values(wanted: Needs, request: Request) -> dict[str, Any]:
    """The arguments by their names, None for those that are not there.

    One that is there twice could be another for the handler than for us, so it is no argument: a set of texts.
    """
    values: dict[str, Any] = {}
    for name in wanted.names:
        if name in request.path_params:
            values[name] = request.path_params[name]
            continue
        given = request.query_params.getlist(name)
        values[name] = frozenset(given) if len(given) > 1 else next(iter(given), None)
    return values
