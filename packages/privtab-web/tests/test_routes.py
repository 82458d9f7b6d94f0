"""The inventory of routes: what guards each one, and what only looks as if it did."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import django
import flask
import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import clear_url_caches, include, path, re_path
from django.views import View
from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocket
from fastapi import Request as WebRequest
from flask.views import MethodView
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.wsgi import WSGIMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from privtab.base import AccessDenied, Span, UsageError
from privtab.client import Embedded
from privtab_web import Guard, acting_as
from privtab_web._coverage import Coverage, covered
from privtab_web._inspect import inspected
from privtab_web._probe import probed
from privtab_web.asgi import AsgiMiddleware, open_route, route
from privtab_web.fastapi import Requires, answer_errors
from privtab_web.wsgi import WsgiMiddleware

WHERE = Span(path="app", line=1, column=1, end_line=1, end_column=1)


def coverage(app: Any, *, probe: bool = False, **how: Any) -> Coverage:
    seen = inspected(app)
    answers = probed(seen, everything=True, **how) if probe else {}
    return covered(seen.routes, (), [], where=WHERE, answers=answers)


def told(app: Any, **how: Any) -> dict[str, tuple[str, str, str]]:
    """Of each route the status, what guards it, and the rows."""
    return {
        one.route.name: (
            str(one.status),
            ", ".join(by for by, _ in one.covers),
            ", ".join(row for _, row in one.covers),
        )
        for one in coverage(app, **how).routes
    }


def statuses(app: Any, **how: Any) -> dict[str, str]:
    return {name: status for name, (status, _, _) in told(app, **how).items()}


def fastapi_app(**settings: Any) -> FastAPI:
    return FastAPI(openapi_url=None, docs_url=None, redoc_url=None, **settings)


def signed_in(request: WebRequest) -> str:
    if "authorization" not in request.headers:
        raise HTTPException(401)
    return "ann"


@pytest.fixture
def guard(client: Embedded) -> Guard:
    return Guard(client)


@pytest.fixture
def ran() -> list[str]:
    return []


# --- FastAPI ---


class Colour(StrEnum):
    RED = "red"


class Part(BaseModel):
    name: str
    tags: list[str]
    size: int | None


class Whole(BaseModel):
    parts: list[Part]
    first: Part
    amount: float


def test_each_way_to_guard_a_fastapi_route_is_seen_and_proved(guard: Guard, ran: list[str]) -> None:
    app = fastapi_app()
    read = Requires("read", "dataset", arg="path", guard=guard, user=signed_in)

    @app.get("/one/{path:path}")
    async def one(path: str, found: Any = Depends(read)) -> None:  # noqa: B008
        ran.append(path)

    @app.get("/two/{path:path}", dependencies=[Depends(read)])
    async def two(path: str) -> None:
        ran.append(path)

    @app.post("/three/{project}/{number}/{colour}")
    @guard.requires("create", "dataset:{project}/{number}")
    def three(project: str, number: int, colour: Colour, body: Whole, limit: int) -> None:
        ran.append(project)

    @app.get("/four/{path:path}")
    def four(path: str) -> None:
        with guard.allowed("read", ("dataset", path)):
            ran.append(path)

    @app.websocket("/five/{path:path}")
    async def five(socket: WebSocket, path: str) -> None:
        with acting_as("ann"):
            async with guard.allowed("read", ("dataset", path)):
                await socket.accept()

    inner = APIRouter(dependencies=[Depends(read)])

    @inner.get("/six/{path:path}")
    def six(path: str) -> None:
        ran.append(path)

    app.include_router(inner, prefix="/v1")
    outer = APIRouter()
    outer.include_router(inner, prefix="/{area}")
    app.include_router(
        outer, prefix="/v2", dependencies=[Depends(Requires("list", "dataset", arg="path", guard=guard))]
    )
    expected = {
        "GET /one/{path:path}": ("guarded", "dependency", "dataset/read"),
        "GET /two/{path:path}": ("guarded", "dependency", "dataset/read"),
        "POST /three/{project}/{number}/{colour}": ("guarded", "decorator", "dataset/create"),
        "GET /four/{path:path}": ("ungated", "", ""),
        "WEBSOCKET /five/{path:path}": ("ungated", "", ""),
        "GET /v1/six/{path:path}": ("guarded", "router dependency", "dataset/read"),
        "GET /v2/{area}/six/{path:path}": (
            "guarded",
            "router dependency, router dependency",
            "dataset/list, dataset/read",
        ),
    }
    assert told(app) == expected
    seen = told(app, probe=True)
    assert {status for status, _, _ in seen.values()} == {"proved"}
    assert seen["GET /four/{path:path}"] == ("proved", "code", "dataset/read")
    assert not ran
    assert not app.dependency_overrides
    with acting_as("ann"):
        three("web", 1, Colour.RED, None, 1)  # type: ignore[arg-type]
    assert ran == ["web"], "after the probe the clients decide again"


def test_what_does_not_guard_does_not_count(guard: Guard, ran: list[str]) -> None:
    """A decorator that the framework does not see, a router that is not included, a route behind another, an override."""
    app = fastapi_app()
    read = Requires("read", "dataset", arg="path", guard=guard)
    replaced = Requires("list", "dataset", arg="path", guard=guard)

    @guard.requires("read", "dataset", arg="path")
    @app.get("/above/{path:path}")
    def above(path: str) -> None:
        ran.append("above")

    left_out = APIRouter(dependencies=[Depends(read)])

    @left_out.get("/left/{path:path}")
    def left(path: str) -> None:
        ran.append("guarded twin")

    @app.get("/left/{path:path}")
    def twin(path: str) -> None:
        ran.append("left")

    @app.get("/items/{number}")
    def item(number: int) -> None:
        ran.append("item")

    @app.get("/items/special")
    @guard.requires("read", "dataset:web/special")
    def special() -> None:
        ran.append("special")

    @app.get("/replaced/{path:path}", dependencies=[Depends(replaced)])
    def overridden(path: str) -> None:
        ran.append("replaced")

    app.dependency_overrides[replaced] = lambda: None
    expected = {
        "GET /above/{path:path}": "ungated",
        "GET /left/{path:path}": "ungated",
        "GET /items/{number}": "ungated",
        "GET /items/special": "not reached",
        "GET /replaced/{path:path}": "ungated",
    }
    assert statuses(app) == statuses(app, probe=True) == expected
    assert ran == ["above", "left", "item", "replaced"]
    (why,) = (one.why for one in coverage(app).routes if one.route.path == "/items/special")
    assert why == "its requests go to `/items/{number}`, which comes first"


def test_a_claim_that_the_probe_refutes_is_no_guard(guard: Guard) -> None:
    """Before the guard something answers, behind it something swallows the refusal, or nothing ever comes so far."""
    app = fastapi_app()

    @app.get("/cached/{path:path}")
    @guard.requires("read", "dataset", arg="path")
    def cached(path: str) -> str:
        return path

    @app.get("/swallowed/{path:path}")
    def swallowed(path: str) -> str:
        try:
            return str(guarded(path))
        except AccessDenied:
            return "nothing to see"

    @guard.requires("read", "dataset", arg="path")
    def guarded(path: str) -> str:
        return path

    @app.get("/late/{path:path}", dependencies=[Depends(signed_in)])
    @guard.requires("read", "dataset", arg="path")
    def late(path: str) -> str:
        return path

    @app.get("/broken/{path:path}")
    @guard.requires("read", "dataset", arg="path")
    def broken(path: str, more: str = Depends(lambda: 1 // 0)) -> str:
        return path

    @app.middleware("http")
    async def cache(request: WebRequest, call_next: Callable[..., Any]) -> Any:
        return PlainTextResponse("old") if request.url.path.startswith("/cached") else await call_next(request)

    assert statuses(app)["GET /cached/{path:path}"] == "guarded"
    found = {one.route.path.split("/")[1]: (str(one.status), one.why) for one in coverage(app, probe=True).routes}
    assert found == {
        "cached": ("not guarded", "GET gives 200, and no guard was asked"),
        "swallowed": ("not guarded", "GET gives 200, which the handler answered after the denial"),
        "late": ("not guarded", "GET gives 401, and no guard was asked"),
        "broken": ("not guarded", "GET gives 500, and no guard was asked"),
    }
    assert statuses(app, probe=True, headers={"Authorization": "Bearer x"})["GET /late/{path:path}"] == "proved"


def test_a_handler_without_end_counts_as_no_answer(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privtab_web._probe.TIMEOUT", 0.3)
    app = fastapi_app()

    @app.get("/first")
    async def first() -> None:
        await asyncio.sleep(1)
        with guard.allowed("read", "dataset:web/clicks"):
            pass

    @app.get("/second")
    async def second() -> None:
        await asyncio.sleep(0.9)

    assert statuses(app, probe=True) == {"GET /first": "ungated", "GET /second": "ungated"}


def test_a_refusal_of_its_own_after_a_denial_is_no_proof(guard: Guard) -> None:
    """What answers 404 because nothing is found, or nobody is signed in, may answer somebody else."""
    app = fastapi_app()
    read = Requires("read", "dataset", arg="path", guard=guard)

    def missing() -> PlainTextResponse:
        return PlainTextResponse("nothing here", 404)

    def is_denied(path: str) -> bool:
        try:
            guard.require(None, "read", ("dataset", path))
        except AccessDenied:
            return True
        return False

    def swallowing(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(path: str) -> Any:
            try:
                return function(path=path)
            except AccessDenied:
                return missing()

        return wrapper

    def cleaned_up() -> Iterator[None]:
        yield

    @app.get("/returned/{path:path}")
    async def returned(path: str) -> Any:
        try:
            async with guard.allowed("read", ("dataset", path)):
                pass
        except AccessDenied:
            await asyncio.sleep(0)
            return missing()

    @app.get("/looked-up/{path:path}")
    def looked_up(path: str) -> None:
        is_denied(path)
        raise HTTPException(404)

    @app.get("/depends/{path:path}", dependencies=[Depends(is_denied)])
    def depends(path: str) -> Any:
        return missing()

    @app.get("/signed-in/{path:path}", dependencies=[Depends(is_denied), Depends(signed_in)])
    def after_signing_in(path: str) -> None:
        pass

    @app.get("/decorated/{path:path}")
    @swallowing
    @guard.requires("read", "dataset", arg="path")
    def decorated(path: str) -> None:
        pass

    # What the denial ends:

    @app.get("/hidden/{path:path}")
    async def hidden(path: str) -> None:
        try:
            async with guard.allowed("read", ("dataset", path)):
                pass
        except AccessDenied:
            await asyncio.sleep(0)
            raise HTTPException(404) from None

    @app.get("/asks-twice/{path:path}")
    async def asks_twice(path: str) -> None:
        is_denied(path)
        try:
            async with guard.allowed("list", "project:web"):
                pass
        finally:
            await asyncio.sleep(0)

    @app.get("/cleaned-up/{path:path}", dependencies=[Depends(cleaned_up), Depends(read)])
    def after_cleaning_up(path: str) -> None:
        pass

    found = {one.route.path.split("/")[1]: (str(one.status), one.why) for one in coverage(app, probe=True).routes}
    answered = "which the handler answered after the denial"
    assert found == {
        "returned": ("not guarded", f"GET gives 404, {answered}"),
        "looked-up": ("not guarded", f"GET gives 404, {answered}"),
        "depends": ("not guarded", f"GET gives 404, {answered}"),
        "signed-in": ("not guarded", f"GET gives 401, {answered}"),
        "decorated": ("not guarded", f"GET gives 404, {answered}"),
        "hidden": ("proved", ""),
        "asks-twice": ("proved", ""),
        "cleaned-up": ("proved", ""),
    }


def test_the_application_is_started_before_it_is_asked_and_ended_afterwards(guard: Guard) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        happened.append("start")
        yield {"loop": asyncio.get_running_loop()}
        happened.append("end")

    happened: list[str] = []
    app = fastapi_app(lifespan=lifespan)

    @app.get("/{path:path}")
    async def read(path: str, request: WebRequest) -> None:
        assert request.state.loop is asyncio.get_running_loop(), "what is made at start belongs to one loop"
        async with guard.allowed("read", ("dataset", path)):
            pass

    assert not happened
    assert statuses(app) == {"GET /{path:path}": "ungated"}
    assert statuses(AsgiMiddleware(app, routes=[], guard=guard, unmapped="allow"), probe=True) == {
        "GET /{path:path}": "proved"
    }
    assert happened == ["start", "end"]

    @asynccontextmanager
    async def failing(app: FastAPI | None) -> AsyncIterator[None]:
        if app is not None:
            raise OSError("no database at db:5432")
        yield

    with pytest.raises(UsageError, match="the application does not start: OSError: no database at db:5432"):
        statuses(fastapi_app(lifespan=failing), probe=True)


def test_a_handler_that_blocks_the_loop_does_not_end_the_probe(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privtab_web._probe.TIMEOUT", 0.2)
    app = fastapi_app()
    end = threading.Event()

    @app.get("/first")
    async def first() -> None:
        end.wait(20)

    @app.get("/{path:path}")
    @guard.requires("read", "dataset", arg="path")
    def second(path: str) -> None:
        pass

    try:
        assert statuses(app, probe=True) == {"GET /first": "ungated", "GET /{path:path}": "proved"}
    finally:
        end.set()


# --- Starlette, ASGI ---


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse("hello")


class Table(HTTPEndpoint):
    async def get(self, _: Any) -> PlainTextResponse:
        return PlainTextResponse("table")

    async def delete(self, _: Any) -> PlainTextResponse:
        return PlainTextResponse("gone")


def test_middleware_guards_what_its_patterns_match_whole(guard: Guard) -> None:
    routes = [
        Route("/health", hello),
        Route("/datasets/{path:path}", hello),
        Route("/names/{project}/{name}", hello),
        Route("/partly/{project}/{name}", hello),
        Route("/table", Table),
        Route("/never/{name}", hello),
    ]
    guarded = [
        open_route("GET", "/health"),
        open_route("GET", "/partly/public/{name}"),
        open_route("HEAD", "/names/{project}/{name}"),
        route("GET", "/datasets/{name}", "read", "dataset:web/{name}"),  # paths of one part alone
        route("GET", "/names/{project}/{name}", "read", "dataset:{project}/{name}"),
        route("GET", "/partly/{project}/{name}", "read", "dataset:{project}/{name}"),
        route("GET", "/table", "read", "dataset:web/table"),
        route("GET", "/nevr/{name}", "read", "dataset:web/{name}"),
    ]
    lax = Starlette(routes=routes)
    lax.add_middleware(AsgiMiddleware, routes=guarded, guard=guard, unmapped="allow")
    assert statuses(lax) == {
        "GET /health": "ungated",
        "GET /datasets/{path:path}": "guarded",
        "GET /names/{project}/{name}": "ungated",
        "GET /partly/{project}/{name}": "guarded",
        "GET /table": "guarded",
        "DELETE /table": "ungated",
        "GET /never/{name}": "ungated",
    }
    (why,) = (one.why for one in coverage(lax, probe=True).routes if one.route.path == "/names/{project}/{name}")
    assert why == "HEAD gives 200, and no guard was asked"
    strict = AsgiMiddleware(Starlette(routes=routes), routes=guarded[3:], guard=guard, user=lambda scope: scope["user"])
    for probe in (False, True):
        found = told(strict, probe=probe)
        assert {status for status, _, _ in found.values()} == {"proved" if probe else "guarded"}
        assert found["GET /table"][1:] == ("middleware", "dataset/read")
        assert found["DELETE /table"][1:] == found["GET /never/{name}"][1:] == ("middleware", ""), "refused to all"


def test_mounted_applications_and_what_is_around_them(guard: Guard, tmp_path: Any) -> None:
    inner = Starlette(routes=[Route("/{name}", hello)])
    routes = [route("GET", "/{name}", "read", "dataset:web/{name}")]
    app = Starlette(
        routes=[
            Mount("/guarded", AsgiMiddleware(inner, routes=routes, guard=guard)),
            Mount("/of/{tenant}", AsgiMiddleware(inner, routes=[open_route("GET", "/{name}")], guard=guard)),
            Mount("/bare", inner),
            Mount("/static", StaticFiles(directory=tmp_path)),
            Mount("/rules", AsgiMiddleware(PlainTextResponse("raw"), routes=routes, guard=guard)),
            Mount("/lax", AsgiMiddleware(PlainTextResponse("raw"), routes=routes, guard=guard, unmapped="allow")),
            Route(
                "/own/{name}",
                hello,
                middleware=[
                    Middleware(
                        AsgiMiddleware, routes=[route("GET", "/own/{name}", "read", "dataset:web/{name}")], guard=guard
                    )
                ],
            ),
            WebSocketRoute("/socket", hello),
            Mount("/bare", inner),
        ]
    )
    expected = {
        "GET /guarded/{name}": ("guarded", "middleware of /guarded", "dataset/read"),
        "GET /of/{tenant}/{name}": ("ungated", "", ""),
        "GET /bare/{name}": ("ungated", "", ""),
        "ANY /static/{path:path}": ("ungated", "", ""),
        "GET /rules/{name}": ("guarded", "middleware of /rules", "dataset/read"),
        "GET /lax/{name}": ("guarded", "middleware of /lax", "dataset/read"),
        "ANY /lax/{path:path}": ("ungated", "", ""),
        "GET /own/{name}": ("guarded", "middleware", "dataset/read"),
        "WEBSOCKET /socket": ("ungated", "", ""),
    }
    last = coverage(app).routes[-1]
    assert (last.route.name, str(last.status)) == ("GET /bare/{name}", "not reached")
    assert told(app) | {"GET /bare/{name}": ("ungated", "", "")} == expected


def test_routes_that_differ_by_types_alone_are_two(guard: Guard) -> None:
    async def guarded(request: Any) -> PlainTextResponse:
        with guard.allowed("read", "dataset:web/clicks"):
            return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/{name:int}", hello), Route("/{name}", guarded)])
    assert statuses(app, probe=True) == {"GET /{name:int}": "ungated", "GET /{name}": "proved"}


# --- Flask, WSGI ---


def flask_app(guard: Guard, ran: list[str]) -> flask.Flask:
    app = flask.Flask("shop", static_folder=None)

    @app.route("/datasets/<path:dataset>", methods=["GET", "POST"])
    @guard.requires("read", "dataset", arg="dataset")
    def datasets(dataset: str) -> str:
        ran.append(dataset)
        return dataset

    @guard.requires("read", "dataset", arg="dataset")
    @app.route("/above/<path:dataset>")
    def above(dataset: str) -> str:
        ran.append("above")
        return dataset

    class Numbers(MethodView):
        @guard.requires("read", "dataset:web/{number}")
        def get(self, number: int) -> str:
            return str(number)

        def put(self, number: int) -> str:
            ran.append("put")
            return str(number)

    class Halves(Numbers):
        def head(self, number: int) -> str:
            ran.append("head")
            return str(number)

    app.add_url_rule("/numbers/<int:number>", view_func=Numbers.as_view("numbers"))
    app.add_url_rule("/halves/<int:number>", view_func=Halves.as_view("halves"))
    return app


def test_routes_of_flask(guard: Guard, ran: list[str]) -> None:
    expected = {
        "GET /datasets/{dataset:path}": "guarded",
        "POST /datasets/{dataset:path}": "guarded",
        "GET /above/{dataset:path}": "ungated",
        "GET /numbers/{number:int}": "guarded",
        "PUT /numbers/{number:int}": "ungated",
        "GET /halves/{number:int}": "ungated",  # by HEAD
        "PUT /halves/{number:int}": "ungated",
    }
    app = flask_app(guard, ran)
    assert statuses(app) == expected
    proved = {name: status.replace("guarded", "proved") for name, status in expected.items()}
    assert statuses(app, probe=True) == proved
    assert ran == ["above", "above", "put", "head", "put"], "by GET, HEAD and PUT"
    assert app.config["PROPAGATE_EXCEPTIONS"] is None
    # An application's own answer to a denial is a refusal, but for that of the handler itself.
    hiding = flask_app(guard, ran)
    hiding.register_error_handler(AccessDenied, lambda _: ("nothing here", 404))

    @hiding.route("/own/<path:dataset>")
    def own(dataset: str) -> Any:
        try:
            guard.require(None, "read", ("dataset", dataset))
        except AccessDenied:
            return "nothing here", 404

    assert statuses(hiding, probe=True) == proved | {"GET /own/{dataset:path}": "not guarded"}
    # Behind middleware, and mounted where another server's application is.
    rules = [route("GET PUT", "/numbers/{n}", "list", "project:web")]
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, routes=rules, guard=guard)  # type: ignore[method-assign]
    outer = Starlette(routes=[Mount("/flask", WSGIMiddleware(app))])
    found = told(outer)
    assert found["PUT /flask/numbers/{number:int}"] == ("guarded", "middleware of /flask", "project/list")
    assert found["GET /flask/numbers/{number:int}"][1:] == (
        "middleware of /flask, decorator",
        "project/list, dataset/read",
    )
    assert {status for status, _, _ in told(outer, probe=True).values()} == {"proved"}


def test_a_dispatcher_of_werkzeug(guard: Guard, ran: list[str]) -> None:
    front = flask.Flask("front", static_folder=None)
    front.add_url_rule("/shop/numbers/<int:number>", view_func=lambda **_: "front")
    app = DispatcherMiddleware(front, {"/shop": flask_app(guard, ran)})
    found = statuses(app, probe=True)
    assert found["GET /shop/numbers/{number:int}"] in ("proved", "not reached")
    assert [str(one.status) for one in coverage(app).routes if one.route.path == "/shop/numbers/{number:int}"] == [
        "guarded",
        "ungated",
        "not reached",
    ]
    assert not any(name.startswith("PUT /numbers") for name in found)


# --- Django ---


@pytest.fixture
def urls(guard: Guard, ran: list[str]) -> Iterator[ModuleType]:
    @guard.requires("read", "dataset", arg="dataset")
    def read(request: Any, dataset: str) -> HttpResponse:
        ran.append(dataset)
        return HttpResponse("read")

    def bare(request: Any, **_: Any) -> HttpResponse:
        ran.append("bare")
        return HttpResponse("bare")

    class Numbers(View):  # type: ignore[misc]
        @guard.requires("read", "dataset:web/{number}")
        def get(self, _: Any, number: int) -> HttpResponse:
            return HttpResponse(str(number))

        def post(self, _: Any, number: int) -> HttpResponse:
            with guard.allowed("create", ("dataset", f"web/{number}")):
                return HttpResponse(str(number))

        def put(self, _: Any, number: int) -> HttpResponse:
            try:
                guard.require(None, "create", ("dataset", f"web/{number}"))
            except AccessDenied:
                return HttpResponse("nothing here", status=404)
            return HttpResponse(str(number))

    module = ModuleType("shop_urls")
    inner = [path("numbers/<int:number>", Numbers.as_view()), re_path(r"^years/(?P<year>[0-9]{4})/$", bare)]
    module.urlpatterns = [  # type: ignore[attr-defined]
        path("datasets/<path:dataset>", read),
        path("v1/", include(inner)),
        path("v1/<str:rest>", bare),
        path("v1/late", read, {"dataset": "web/late"}),
    ]
    sys.modules["shop_urls"] = module
    if not settings.configured:
        settings.configure(
            ROOT_URLCONF="shop_urls",
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="of the tests",  # noqa: S106
            MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
        )
        django.setup()
    clear_url_caches()
    yield module
    del sys.modules["shop_urls"]


@pytest.mark.parametrize("handler", [WSGIHandler, ASGIHandler])
def test_routes_of_django(urls: ModuleType, handler: Callable[[], Any], ran: list[str]) -> None:
    expected = {
        "ANY /datasets/{dataset:path}": ("guarded", "decorator", "dataset/read"),
        "GET /v1/numbers/{number:int}": ("guarded", "decorator", "dataset/read"),
        "POST /v1/numbers/{number:int}": ("ungated", "", ""),
        "PUT /v1/numbers/{number:int}": ("ungated", "", ""),
        "ANY /v1/years/{year}/": ("ungated", "", ""),
        "ANY /v1/{rest:str}": ("ungated", "", ""),
        "ANY /v1/late": ("not reached", "decorator", "dataset/read"),
    }
    found = told(handler())
    # No made-up value is a year: what is not reached is not proved either.
    assert found == told(urls) == expected | {"ANY /v1/years/{year}/": ("not reached", "", "")}
    seen = told(handler(), probe=True)
    assert seen == told(urls, probe=True)
    assert seen["ANY /datasets/{dataset:path}"] == ("proved", "decorator", "dataset/read")
    assert seen["GET /v1/numbers/{number:int}"] == ("proved", "decorator", "dataset/read")
    assert seen["POST /v1/numbers/{number:int}"] == ("proved", "code", "dataset/create")
    assert seen["PUT /v1/numbers/{number:int}"] == ("not guarded", "", "")
    assert seen["ANY /v1/{rest:str}"] == ("ungated", "", "")
    assert set(ran) == {"bare"}


# --- a real application ---


def test_the_routes_of_mlflow_that_its_validators_leave_out(guard: Guard) -> None:
    """Rules and validators are recorded: see `source` in the file."""
    recorded = json.loads((Path(__file__).parent / "mlflow_routes.json").read_text(encoding="utf-8"))
    app = flask.Flask("mlflow", static_folder=None)
    for number, text in enumerate(recorded["rules"]):
        *methods, rule = text.split()
        app.add_url_rule(rule, str(number), lambda **_: "", methods=methods)
    rules = [
        route(methods, where, name, "server:mlflow") for methods, where, name in map(str.split, recorded["validators"])
    ]
    seen = told(WsgiMiddleware(app, routes=rules, guard=guard, unmapped="allow"), probe=True)
    by_status = Counter(status for status, _, _ in seen.values())
    assert by_status == {"proved": len(seen) - 21, "ungated": 21}
    ungated = {name for name, (status, _, _) in seen.items() if status == "ungated"}
    assert "POST /api/2.0mlflow/experiments/search-datasets" in ungated, "a path without its slash"
    assert sum("/mlflow-artifacts/" in name for name in ungated) == 8


# --- what is no application ---


def test_an_open_route_of_a_middleware_opens_the_routes_that_it_matches(urls: ModuleType, guard: Guard) -> None:
    def by(*first: Any) -> str:
        rules = [*first, route("GET", "/v1/numbers/{n}", "list", "project:web")]
        return told(WsgiMiddleware(WSGIHandler(), routes=rules, guard=guard))["GET /v1/numbers/{number:int}"][1]

    assert by() == "middleware, decorator"
    assert by(open_route("GET", "/v1/numbers/8")) == "decorator"
    assert by(open_route("GET", "/v1/numbrs/8"), open_route("POST", "/v1/numbers/8")) == "middleware, decorator"


def test_what_is_no_application_is_refused() -> None:
    with pytest.raises(UsageError, match="a str is no application of"):
        inspected("app")


def test_after_a_probe_errors_of_applications_are_answered_as_before(guard: Guard) -> None:
    app = fastapi_app()
    answer_errors(app)

    @app.get("/{path:path}")
    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> str:
        return path

    assert statuses(app, probe=True) == {"GET /{path:path}": "proved"}
    with acting_as("ben"), pytest.raises(AccessDenied, match="blocked by a denial of READ"):
        read("web/salaries")


def test_a_route_is_proved_by_all_of_its_methods(urls: ModuleType, guard: Guard) -> None:
    def halfway(request: Any) -> HttpResponse:
        if request.method != "POST":
            with guard.allowed("read", "dataset:web/clicks"):
                pass
        return HttpResponse("done")

    urls.urlpatterns.append(path("halfway", halfway))
    clear_url_caches()
    seen = inspected(urls)
    safe = covered(seen.routes, (), [], where=WHERE, answers=probed(seen)).routes[-1]
    assert (str(safe.status), safe.why) == ("ungated", "other methods were not asked: `--probe all` asks by them")
    everything = covered(seen.routes, (), [], where=WHERE, answers=probed(seen, everything=True)).routes[-1]
    assert (str(everything.status), everything.why) == ("ungated", "POST gives 200, and no guard was asked")


@dataclass
class Looping:
    app: Any = None

    async def __call__(self, *_: Any) -> None:
        raise AssertionError


def test_an_application_that_wraps_itself_is_refused() -> None:
    app = Looping()
    app.app = app
    with pytest.raises(UsageError, match="wraps itself"):
        inspected(app)
