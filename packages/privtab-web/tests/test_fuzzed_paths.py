"""Whatever path and method is sent, a handler that needs a decision gets the parameters that were decided on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any
from urllib.parse import unquote, unquote_to_bytes
from uuid import UUID

import pytest
from fastapi import APIRouter, FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from privtab.base import encode_name
from privtab.client import Embedded, Hook, Outcome, Question
from privtab_web.asgi import AsgiMiddleware, open_route, route
from privtab_web.wsgi import WsgiMiddleware

ROUTES = (
    open_route("GET", "/public/{rest:path}"),
    route("GET", "/datasets/{path:path}", "read", "dataset", arg="path"),
    route("GET PUT", "/projects/{project}/{name}", "read", "dataset:{project}/{name}"),
    route("GET", "/web/numbers/{number}", "read", "dataset:web/{number}"),
    route("GET", "/web/ids/{id}", "read", "dataset:web/{id}"),
    route("GET", "/web/colours/{colour}", "read", "dataset:web/{colour}"),
)
SEGMENTS = (
    "datasets", "projects", "public", "web", "numbers", "ids", "colours", "red", "salaries", "clicks", "lab", "new one", "Datasets",
    "7", "007", "+7", "-7", "7.0", "1_000", "\u0667", "\u00e9", ".", "..", "", "*", "%", "a%2Fb", ";x=1", "\\", "{path}", "x",
    "6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff8b86d011b42d00c04fc964ff",
)  # fmt: skip
ENDS = ("", "", "", "/", "//", "\n", "\r\n", "\0", "\x85", "\u2028", " ", "%0a", "?", "#", ";")
METHODS = ("GET", "GET", "GET", "GET", "HEAD", "PUT", "get", "POST", "OPTIONS")
Called = list[tuple[str, dict[str, Any]]]
Send = Callable[[str, str], None]


class Colour(Enum):
    RED = "red"


class DecidedResources(Hook):
    """Resources of the decisions."""

    def __init__(self) -> None:
        self.resources: list[str] = []

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        del outcome, begun
        self.resources.append(str(question.request and question.request.resource))


def starlette_app(called: Called) -> Starlette:
    def handler(name: str) -> Any:
        async def run(request: WebRequest) -> PlainTextResponse:
            called.append((name, dict(request.path_params)))
            return PlainTextResponse("")

        return run

    inner = [
        Route("/numbers/{number:int}", handler("number")),
        Route("/ids/{id:uuid}", handler("id")),
        Route("/colours/{colour}", handler("colour")),
    ]
    return Starlette(
        routes=[
            Route("/public/{rest:path}", handler("public")),
            Route("/datasets/{dataset:path}", handler("path")),
            Route("/projects/{project}/{name}", handler("names"), methods=["GET", "PUT"]),
            Mount("/web", routes=inner),
        ]
    )


def fastapi_app(called: Called) -> FastAPI:
    app, inner = FastAPI(), APIRouter()

    @app.get("/public/{rest:path}")
    def public(rest: str) -> None:
        called.append(("public", {"rest": rest}))

    @app.get("/datasets/{dataset:path}")
    async def path(dataset: str) -> None:
        called.append(("path", {"dataset": dataset}))

    @app.api_route("/projects/{project}/{name}", methods=["GET", "PUT"])
    async def names(project: str, name: str) -> None:
        called.append(("names", {"project": project, "name": name}))

    @inner.get("/numbers/{number}")
    async def number(number: int) -> None:
        called.append(("number", {"number": number}))

    @inner.get("/ids/{id}")
    async def id_(id: UUID) -> None:  # noqa: A002  (the name of the parameter)
        called.append(("id", {"id": id}))

    @inner.get("/colours/{colour}")
    async def colour(colour: Colour) -> None:
        called.append(("colour", {"colour": colour.value}))

    app.include_router(inner, prefix="/web")
    return app


def flask_app(called: Called) -> Flask:
    app = Flask("fuzzed")
    app.url_map.strict_slashes = False

    def add(name: str, rule: str, methods: tuple[str, ...] = ("GET",)) -> None:
        def view(**parameters: Any) -> str:
            called.append((name, parameters))
            return ""

        app.add_url_rule(rule, name, view, methods=methods)

    add("public", "/public/<path:rest>")
    add("path", "/datasets/<path:dataset>")
    add("names", "/projects/<project>/<name>", ("GET", "PUT"))
    add("number", "/web/numbers/<int:number>")
    add("id", "/web/ids/<uuid:id>")
    add("colour", "/web/colours/<any(red):colour>")
    return app


def asgi(app: Any, client: Embedded, **options: Any) -> Send:
    guarded = AsgiMiddleware(app, routes=ROUTES, guard=client, user=lambda _: "ann", **options)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(_: Any) -> None:
        pass

    def ask(method: str, target: str) -> None:
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": b"",
        }
        asyncio.run(guarded({**scope, "headers": [], "server": ("x", 80), "scheme": "http"}, receive, send))

    return ask


def wsgi(app: Flask, client: Embedded, **options: Any) -> Send:
    guarded: Any = WsgiMiddleware(app.wsgi_app, routes=ROUTES, guard=client, user=lambda _: "ann", **options)

    def ask(method: str, target: str) -> None:
        path = unquote_to_bytes(target).decode("latin-1")
        environ = app.test_request_context("/", method=method).request.environ | {"PATH_INFO": path}
        for _ in guarded(environ, lambda *_: None):
            pass

    return ask


def targets(rnd: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Random methods and paths, most of them near a route, percent-encoded in some places."""
    for _ in range(count):
        parts = [rnd.choice(SEGMENTS) for _ in range(rnd.choice([1, 2, 3, 3, 3, 4]))]
        if rnd.random() < 0.8:
            shape = rnd.choice(
                [
                    "datasets/web",
                    "datasets",
                    "projects/web",
                    "projects",
                    "web/numbers",
                    "web/ids",
                    "web/colours",
                    "public",
                ]
            )
            good = {"web/numbers": "7", "web/ids": SEGMENTS[-1], "web/colours": "red"}.get(shape, "clicks")
            parts = [*shape.split("/"), *(parts[: rnd.choice([1, 1, 1, 2])] if rnd.random() < 0.8 else [good])]
        path = "/".join([rnd.choice(["", "", "", "", "/", "/.", "/x/.."]), *parts]) + rnd.choice(ENDS)
        encoded = "".join(
            sign
            if sign in "/." or (sign.isascii() and sign.isalnum() and rnd.random() < 0.98)
            else "".join(f"%{byte:02x}" for byte in sign.encode())
            for sign in path
        )
        yield rnd.choice(METHODS), encoded


def entity(handler: str, parameters: dict[str, Any]) -> str:
    """What a decision must have been about before a handler ran."""
    match handler:
        case "path":
            return f"dataset:{parameters['dataset']}"
        case "names":
            return f"dataset:{encode_name(parameters['project'])}/{encode_name(parameters['name'])}"
        case _:
            [value] = parameters.values()
            return f"dataset:web/{encode_name(str(value))}"


KINDS: dict[str, Callable[..., tuple[Called, Send]]] = {}


def made(app_of: Any, serve: Any) -> Callable[..., tuple[Called, Send]]:
    def make(client: Embedded, **options: Any) -> tuple[Called, Send]:
        called: Called = []
        return called, serve(app_of(called), client, **options)

    return make


KINDS = {"starlette": made(starlette_app, asgi), "fastapi": made(fastapi_app, asgi), "flask": made(flask_app, wsgi)}


@pytest.mark.parametrize("unmapped", ["deny", "allow"])
@pytest.mark.parametrize(
    "count", [200, pytest.param(1_500, marks=pytest.mark.slow), pytest.param(5_000, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_gets_what_was_checked(kind: str, count: int, unmapped: str, bundles: Any) -> None:
    decided = DecidedResources()
    ran: set[str] = set()
    with Embedded(*bundles, hooks=[decided]) as client:
        called, send = KINDS[kind](client, unmapped=unmapped)
        for method, target in targets(random.Random(f"{kind} {unmapped}"), count):
            called.clear()
            decided.resources.clear()
            send(method, target)
            for handler, parameters in called:
                ran.add(handler)
                if handler != "public":
                    assert decided.resources == [entity(handler, parameters)], (method, target)
    assert count < 1000 or ran >= {"public", "path", "names"}
    assert count < 5000 or ran == {"public", "path", "names", "number", "id", "colour"}


@pytest.mark.parametrize(
    "target",
    [
        "/datasets/web/clicks%0a",
        "//datasets/web/clicks",
        "/projects/web/clicks/",
        "/datasets/web/clicks%e2%80%a8",
        "/public/x%0a",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_other_spellings_of_a_path_reach_no_handler(kind: str, target: str, bundles: Any) -> None:
    with Embedded(*bundles) as client:
        called, send = KINDS[kind](client, unmapped="allow")
        send("GET", "/datasets/web/clicks")
        assert called == [("path", {"dataset": "web/clicks"})]
        send("GET", target)
        assert len(called) == 1


def test_a_number_is_decided_as_the_handler_gets_it(bundles: Any) -> None:
    decided = DecidedResources()
    with Embedded(*bundles, hooks=[decided]) as client:
        for kind in KINDS:
            called, send = KINDS[kind](client)
            send("GET", "/web/numbers/007")
            assert called == [("number", {"number": 7})], kind
            assert decided.resources.pop() == "dataset:web/7"


@pytest.mark.parametrize("target", ["/api/datasets/web/clicks", "/datasets/web/clicks"])
@pytest.mark.parametrize("unmapped", ["deny", "allow"])
def test_the_root_path_of_an_application_is_no_way_around_a_decision(target: str, unmapped: str, bundles: Any) -> None:
    called: Called = []
    decided = DecidedResources()
    app = fastapi_app(called)
    app.root_path = "/api"
    with Embedded(*bundles, hooks=[decided]) as client:
        asgi(app, client, unmapped=unmapped)("GET", target)
    assert decided.resources == [entity(name, parameters) for name, parameters in called]
