"""FastAPI: a dependency that requests a decision before the handler runs, and handlers for errors of guarded functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from privtab.base import Decision, DecisionError, UsageError
from privtab_web._answers import HttpResponse, Tell, answer, as_caller
from privtab_web._guard import GUARD, USER, AnyAsker, Guard, mark
from privtab_web._needs import EntityTemplate, RequestTemplate, request_template

try:
    from fastapi import Depends, FastAPI, HTTPException, Request, Response
    from fastapi.dependencies.utils import request_params_to_args
    from pydantic import BaseModel
except ImportError:  # pragma: no cover  (tests run with it)
    raise UsageError("privtab_web.fastapi needs FastAPI: pip install fastapi") from None

__all__ = ["Requires", "answer_errors"]


def Requires(  # noqa: N802  (named like FastAPI's `Depends` and `Security`)
    action: str,
    resource: EntityTemplate,
    *,
    arg: str | None = None,
    with_: Mapping[str, EntityTemplate] | None = None,
    flags: Iterable[str] = (),
    guard: Guard | AnyAsker = GUARD,
    user: Callable[..., Any] | None = None,
    tell: Tell | str = Tell.SUMMARY,
) -> Callable[..., Awaitable[Decision]]:
    """A dependency that returns the decision of an allow, or else answers instead of the handler.

    `Depends(Requires("load", "table", arg="table_id", user=current_user))`: arguments are taken from the path, then from the
    query. `user` is a dependency that returns a name, a Caller or None; by default, the caller of the guard. `guard` is a
    Guard or a client. An argument that the handler reads as something else (`007` as a number, another case) is refused: use
    `@requires`, which sees the converted values. 403 for a denial, with the detail set by `tell`; 401 without a caller; 400, 503
    and 500 without a decision.
    """
    template = request_template(action, resource, arg, with_, flags)
    bound_guard = guard if isinstance(guard, Guard) else Guard(guard)
    detail = Tell(tell)

    async def current_caller() -> Any:
        return bound_guard.caller()

    async def permitted(request: Request, asked_by: Any = Depends(user or current_caller)) -> Decision:  # noqa: B008  (FastAPI's notation)
        try:
            return await bound_guard.aask(as_caller(asked_by), template, _values(template, request))
        except DecisionError as error:
            raise Refused(answer(error, detail)) from error

    mark(permitted, template)
    setattr(permitted, USER, user)
    return permitted


class Refused(HTTPException):
    """The error of `Requires`: `detail` is a sentence, as in FastAPI's errors; with `answer_errors`, a problem document."""

    def __init__(self, refusal: HttpResponse) -> None:
        sentence = refusal.problem.get("detail", refusal.problem["title"])
        super().__init__(refusal.status, sentence, dict(refusal.headers))
        self.refusal = refusal


def answer_errors(app: FastAPI, *, tell: Tell | str = Tell.SUMMARY) -> None:
    """Answer with problem documents if `Requires`, a handler or a guarded function it calls refuses or has no decision."""
    detail = Tell(tell)

    async def handle(_: Request, error: Exception) -> Response:
        assert isinstance(error, DecisionError | Refused)
        refusal = error.refusal if isinstance(error, Refused) else answer(error, detail)
        return Response(refusal.body, refusal.status, dict(refusal.fields()))

    app.add_exception_handler(DecisionError, handle)
    app.add_exception_handler(Refused, handle)


def _values(template: RequestTemplate, request: Request) -> dict[str, Any]:
    """The arguments by name; None for missing ones.

    Where the handler reads another value, such as a repeated argument's, the values become a set of texts, which is no valid name or path.
    """
    values: dict[str, Any] = {}
    for name in template.names:
        in_path = name in request.path_params
        sent = [request.path_params[name]] if in_path else request.query_params.getlist(name)
        read = {str(getattr(value, "value", value)) for value in _read(request, name)}
        texts = read.union(map(str, sent))
        values[name] = frozenset(texts) if len(sent) > 1 or len(texts) > 1 else next(iter(sent), None)
    return values


def _read(request: Request, name: str) -> Iterator[Any]:
    """Yield the values of an argument for the handler and its dependencies, under its name or an alias, also from models."""
    dependants = [request.scope["route"].dependant]
    while dependants:
        dependant = dependants.pop()
        dependants += dependant.dependencies
        fields = ((dependant.path_params, request.path_params), (dependant.query_params, request.query_params))
        for field, sent in ((field, sent) for listed, sent in fields for field in listed):
            found, _ = request_params_to_args([field], sent)  # without a value, FastAPI answers 422
            for value in found.values():
                inner = type(value).model_fields if isinstance(value, BaseModel) else {}
                read = [(getattr(value, of), of, info) for of, info in inner.items()] or [
                    (value, field.name, field.field_info)
                ]
                for part, of, info in read:
                    if name in _names(of, info):
                        yield from part if isinstance(part, list) else (part,)


def _names(name: str, info: Any) -> set[object]:
    """The names by which a field is read."""
    alias = info.validation_alias
    return {name, info.alias, *(getattr(alias, "choices", None) or (alias,))}
