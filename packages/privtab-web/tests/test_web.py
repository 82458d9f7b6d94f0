"""ASGI and WSGI applications and FastAPI handlers: every answer that is no allow is a refusal, over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import requests
import uvicorn
from fastapi import Depends, FastAPI, Query
from fastapi import Request as WebRequest
from pydantic import AliasChoices, BaseModel, Field, StringConstraints

from privtab import Client, Decision
from privtab.base import AccessDenied, UsageError
from privtab.bundle import state_bundle
from privtab.client import Embedded
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import from_tables, validate
from privtab_web import Caller, Guard, Tell, caller, decision
from privtab_web.asgi import AsgiMiddleware, open_route, route
from privtab_web.fastapi import Requires, answer_errors
from privtab_web.wsgi import WsgiMiddleware

ROUTES = (
    open_route("GET", "/health"),
    route("GET", "/datasets/{path:path}", "read", "dataset", arg="path"),
    route("PUT", "/projects/{project}/{name}", "create", "dataset:{project}/{name}"),
    route("WEBSOCKET", "/watch/{path:path}", "read", "dataset", arg="path"),
)
ALLOWED = ("ann", "GET", "/datasets/web/salaries", 200)
CASES = [
    ALLOWED,
    ("ben", "GET", "/datasets/web/salaries", 403),
    ("ben", "GET", "/datasets/web/clicks", 200),
    ("ben", "HEAD", "/datasets/web/salaries", 403),
    ("ann", "HEAD", "/datasets/web/salaries", 200),
    ("", "GET", "/datasets/web/clicks", 401),
    ("ann", "PUT", "/projects/web/new", 200),
    ("ann", "PUT", "/projects/web/new%20one", 200),
    ("ben", "PUT", "/projects/web/new", 403),
    # What no route maps, however it is spelt, is refused.
    ("ann", "DELETE", "/datasets/web/clicks", 403),
    ("ann", "GET", "/", 403),
    ("ann", "GET", "/datasets", 403),
    ("ann", "GET", "/Datasets/web/clicks", 403),
    ("ann", "GET", "/health/more", 403),
    ("ann", "PUT", "/projects/web%2Flab/x", 403),
    ("ann", "OPTIONS", "/datasets/web/clicks", 403),
    # What makes no sense as a question is no allow.
    ("ann", "GET", "/datasets/web", 400),
    ("ann", "GET", "/datasets/a/b/c", 400),
    ("ann", "GET", "/datasets/", 400),
    # What routers read differently is no path.
    ("ben", "GET", "/datasets/web/salaries%0a", 400),
    ("ann", "GET", "/datasets/web/clicks%c2%85", 400),
    ("ann", "GET", "/health%0A", 400),
    ("", "GET", "/health", 200),
]


def user_of(headers: Mapping[str, str]) -> Caller | None:
    name = headers.get("x-user")
    return Caller(user=name) if name else None


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """An ASGI application on a free port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class calls it so
        pass


@contextmanager
def serving_wsgi(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def observed() -> dict[str, Any]:
    """What an application sees of who asks and what was decided."""
    who, found = caller(), decision()
    return {"user": who and who.user, "rule": found and found.rule}


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = json.dumps(observed()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(observed()).encode()]


def asgi(guard: Any, **more: Any) -> AsgiMiddleware:
    def user(scope: Any) -> Caller | None:
        return user_of({name.decode(): value.decode() for name, value in scope["headers"]})

    return AsgiMiddleware(asgi_app, routes=ROUTES, guard=guard, user=user, **more)


def wsgi(guard: Any, **more: Any) -> WsgiMiddleware:
    def user(environ: Any) -> Caller | None:
        return user_of({"x-user": environ.get("HTTP_X_USER", "")})

    return WsgiMiddleware(wsgi_app, routes=ROUTES, guard=guard, user=user, **more)


Served = Callable[..., Any]
KINDS: dict[str, tuple[Served, Served]] = {"asgi": (asgi, serving), "wsgi": (wsgi, serving_wsgi)}


@pytest.fixture(params=list(KINDS))
def served(request: pytest.FixtureRequest) -> Callable[..., Any]:
    make, serve = KINDS[request.param]
    return lambda guard, **more: serve(make(guard, **more))


def ask(url: str, user: str, method: str, path: str) -> requests.Response:
    with requests.Session() as session:
        prepared = session.prepare_request(requests.Request(method, url, headers={"X-User": user}))
        prepared.url = url + path
        return session.send(prepared, timeout=5)


def test_every_request_is_decided_before_the_application_sees_it(served: Served, client: Embedded) -> None:
    with served(client) as url:
        for user, method, path, status in CASES:
            assert ask(url, user, method, path).status_code == status, (user, method, path)
        assert ask(url, "ann", "GET", "/datasets/web/x").json() == {"user": "ann", "rule": "studio/dataset/read"}
        assert ask(url, "ann", "GET", "/health").json() == {"user": "ann", "rule": None}


def test_a_refusal_is_a_problem_document_that_says_as_much_as_it_may(served: Served, client: Embedded) -> None:
    more: dict[str, dict[str, Any]] = {
        "nothing": {},
        "rule": {"rule": "studio/dataset/read"},
        "summary": {"rule": "studio/dataset/read"},
        "reasons": {
            "rule": "studio/dataset/read",
            "missing": [["deny READ (dataset:web/salaries) to user:ben"], ["owner (dataset:web/salaries)"]],
        },
    }
    for tell, expected in more.items():
        with served(client, tell=tell) as url:
            answer = ask(url, "ben", "GET", "/datasets/web/salaries")
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers["Cache-Control"] == "no-store"
            problem = answer.json()
            assert problem.pop("decision_id")
            assert ("blocked by a denial of READ" in problem.pop("detail", "")) is (tell in ("summary", "reasons"))
            assert problem == {"title": "access denied", "status": 403, **expected}
            assert ("detail" in ask(url, "ann", "GET", "/datasets/web").json()) is (tell in ("summary", "reasons"))


def test_without_an_answer_nothing_passes_and_nothing_is_disclosed(served: Served, nobody_there: Client) -> None:
    for guard in (nobody_there, Guard()):
        with served(guard) as url:
            answer = ask(url, "ann", "GET", "/datasets/web/clicks")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json() == {"title": "no decision available", "status": 503}
            assert ask(url, "ann", "GET", "/nowhere").status_code == 403
            assert ask(url, "", "GET", "/health").status_code == 200


def test_unmapped_requests_pass_where_that_is_configured(served: Served, client: Embedded) -> None:
    with served(client, unmapped="allow") as url:
        assert ask(url, "", "GET", "/nowhere").status_code == 200
        assert ask(url, "ben", "GET", "/datasets/web/salaries").status_code == 403
    with pytest.raises(ValueError, match="`yes`"), served(client, unmapped="yes"):
        pass


def test_observing_lets_pass_and_says_what_it_would_refuse(
    served: Served, bundles: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Embedded(*bundles, mode="observe") as client, served(client) as url:
        for user, path in (("ben", "/datasets/web/salaries"), ("", "/datasets/web/clicks"), ("ann", "/nowhere")):
            caplog.clear()
            assert ask(url, user, "GET", path).status_code == 200
            assert any(record.levelno == logging.WARNING for record in caplog.records), path


def test_the_remote_user_of_the_server_is_used_by_default(client: Embedded) -> None:
    def authenticated(environ: Any, start_response: Any) -> Any:
        environ["REMOTE_USER"] = "ben"
        return WsgiMiddleware(wsgi_app, routes=ROUTES, guard=client)(environ, start_response)

    with serving_wsgi(authenticated) as url:
        assert ask(url, "ann", "GET", "/datasets/web/salaries").status_code == 403
        assert ask(url, "ann", "GET", "/datasets/web/clicks").json()["user"] == "ben"


def test_below_a_mounted_path_routes_are_the_application_s_own(client: Embedded) -> None:
    app = FastAPI()
    app.mount("/api", asgi(client))
    with serving(app) as url:
        assert ask(url, "ann", "GET", "/api/datasets/web/clicks").status_code == 200
        assert ask(url, "ben", "GET", "/api/datasets/web/salaries").status_code == 403
        assert ask(url, "ann", "GET", "/api/api/datasets/web/clicks").status_code == 403


def test_a_websocket_is_refused_before_it_is_accepted(client: Embedded) -> None:
    async def watch(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    def user(scope: Any) -> str:
        return "ben"

    app = AsgiMiddleware(watch, routes=ROUTES, guard=client, user=user)

    def first(path: str) -> str:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message["type"])

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        asyncio.run(app({"type": "websocket", "path": path, "headers": []}, receive, send))
        (found,) = sent
        return str(found)

    assert first("/watch/web/clicks") == "websocket.accept"
    assert first("/watch/web/salaries") == "websocket.close"
    assert first("/datasets/web/clicks") == "websocket.close", "a route for GET is none for a websocket"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("", "/x", "read", "dataset:a"), "no method"),
        (("GET", "x", "read", "dataset:a"), "begins with"),
        (("GET", "/{x", "read", "dataset:a"), "malformed"),
        (("GET", "/{x:int}", "read", "dataset:{x}"), "malformed"),
        (("GET", "/{x}/{x}", "read", "dataset:{x}"), "malformed"),
        (("GET", "/{x}", "read", "dataset:{y}"), r"no `\{y\}`"),
    ],
)
def test_a_route_that_can_never_be_decided_is_refused_when_it_is_declared(arguments: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        route(*arguments)


# --- FastAPI ---

SENTENCE = (
    "user:ben may not `read` on dataset:web/salaries; blocked by a denial of READ (dataset:web/salaries) to user:ben; "
    "or missing: owner (dataset:web/salaries)"
)


async def signed_in(request: WebRequest) -> Caller | None:
    return user_of(request.headers)


def fastapi_app(guard: Any, tell: Tell = Tell.SUMMARY) -> FastAPI:
    app = FastAPI()
    answer_errors(app, tell=tell)
    behind = guard if isinstance(guard, Guard) else Guard(guard)
    common: dict[str, Any] = {"guard": behind, "user": signed_in, "tell": tell}
    read = Requires("read", "dataset", arg="path", **common)

    @app.get("/datasets/{path:path}")
    async def get_dataset(path: str, found: Decision = Depends(read)) -> dict[str, Any]:  # noqa: B008
        return {"path": path, "rule": found.rule}

    @app.put(
        "/projects/{project}/{name}",
        dependencies=[Depends(Requires("create", "dataset:{project}/{name}", **common))],
    )
    def put_dataset(project: str, name: str) -> str:
        return f"{project}/{name}"

    @app.get("/search", dependencies=[Depends(Requires("read", "dataset", arg="q", **common))])
    async def search(q: str) -> str:
        return q

    @app.get("/small/{path:path}", dependencies=[Depends(read)])
    async def small(path: Annotated[str, StringConstraints(to_lower=True)]) -> str:
        return path

    @app.get("/deep/{path:path}")
    async def deep(path: str) -> str:
        @behind.requires("read", "dataset", arg="path", user=lambda: "ben")
        async def read_it(path: str) -> str:
            return path

        return await read_it(path)

    return app


def test_a_handler_runs_for_an_allow_alone(client: Embedded) -> None:
    with serving(fastapi_app(client)) as url:
        for user, method, path, status in (
            ("ann", "GET", "/datasets/web/salaries", 200),
            ("ben", "GET", "/datasets/web/salaries", 403),
            ("", "GET", "/datasets/web/salaries", 401),
            ("ann", "GET", "/datasets/web", 400),
            ("ann", "PUT", "/projects/web/new", 200),
            ("ben", "PUT", "/projects/web/new", 403),
            ("ann", "GET", "/search?q=web/clicks", 200),
            ("ben", "GET", "/search?q=web/salaries", 403),
            ("ben", "GET", "/search?q=web/clicks&q=web/salaries", 400),
            ("ann", "GET", "/small/web/clicks", 200),
            (
                "ann",
                "GET",
                "/small/Web/clicks",
                400,
            ),  # the handler reads another name than the one that would be decided
            ("ann", "GET", "/deep/web/clicks", 200),
            ("ann", "GET", "/deep/web/salaries", 403),
        ):
            assert ask(url, user, method, path).status_code == status, (user, method, path)
        assert ask(url, "ann", "GET", "/datasets/web/x").json() == {"path": "web/x", "rule": "studio/dataset/read"}
        assert ask(url, "", "GET", "/datasets/web/x").headers["WWW-Authenticate"] == "Bearer"
        for path in ("/datasets/web/salaries", "/deep/web/salaries"):
            refused = ask(url, "ben", "GET", path)
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert refused.json()["detail"] == SENTENCE
            assert set(refused.json()) == {"title", "status", "detail", "rule", "decision_id"}


def test_the_dependency_alone_answers_with_the_sentence_of_access_denied(client: Embedded) -> None:
    for tell, detail in (("summary", SENTENCE), ("reasons", SENTENCE), ("nothing", "access denied")):
        app = FastAPI()
        needed = Requires("read", "dataset", arg="path", guard=client, user=signed_in, tell=tell)

        @app.get("/datasets/{path:path}", dependencies=[Depends(needed)])
        async def get_dataset(path: str) -> str:
            return path

        with serving(app) as url:
            refused = ask(url, "ben", "GET", "/datasets/web/salaries")
            assert (refused.status_code, refused.json()) == (403, {"detail": detail})
            assert ask(url, "", "GET", "/datasets/web/salaries").headers["WWW-Authenticate"] == "Bearer"
    with pytest.raises(AccessDenied) as denied:
        client.require("ben", "read", "dataset:web/salaries")
    assert str(denied.value) == SENTENCE


def test_a_denial_is_one_line_unless_more_is_wanted(tmp_path: Path) -> None:
    program = load_program("gravitino/1.1.0")
    state, _ = validate(program, from_tables({}, "rows"))
    bundles = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    bundles[0].write_bytes(policy_artifacts(program).bundle())
    bundles[1].write_bytes(state_bundle(program, state))
    answers = {}
    with Embedded(*bundles) as client:
        for tell in ("summary", "reasons"):
            app = FastAPI()
            more: dict[str, Any] = {} if tell == "summary" else {"tell": tell}
            answer_errors(app, **more)
            needed = Requires("load", "table", arg="table", guard=client, user=signed_in, **more)

            @app.get("/tables/{table:path}", dependencies=[Depends(needed)])
            async def table(table: str) -> str:
                return table

            with serving(app) as url:
                answers[tell] = ask(url, "eve", "GET", "/tables/m/c/s/t")
    brief, full = answers["summary"].json(), answers["reasons"].json()
    assert (brief["rule"], len(answers["summary"].content) < 500) == ("gravitino/table/load", True)
    assert brief["detail"].endswith(f", or one of {len(full['missing']) - 2} other ways")
    assert len(full["missing"]) > 4
    assert len(answers["reasons"].content) > 3 * len(answers["summary"].content)


def test_a_handler_tells_no_more_than_it_may(client: Embedded) -> None:
    with serving(fastapi_app(client, Tell.NOTHING)) as url:
        for path in ("/datasets/web/salaries", "/deep/web/salaries"):
            assert "READ" not in ask(url, "ben", "GET", path).text
            assert "studio" not in ask(url, "ben", "GET", path).text


def test_without_an_answer_no_handler_runs(nobody_there: Client) -> None:
    with serving(fastapi_app(nobody_there)) as url:
        for path in ("/datasets/web/clicks", "/deep/web/clicks"):
            answer = ask(url, "ann", "GET", path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "127.0.0.1" not in answer.text


class Chosen(BaseModel):
    dataset: str = Field(validation_alias=AliasChoices("name", "q"))


class Lower(BaseModel):
    q: Annotated[str, StringConstraints(to_lower=True)]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("q=web/clicks&name=web/salaries", Annotated[str, Query(alias="name")]),
        ("q=web/clicks&name=web/salaries", Annotated[str, Query(validation_alias=AliasChoices("name", "q"))]),
        ("q=web/clicks&name=web/salaries", Annotated[Chosen, Query()]),
        ("q=web/Salaries", Annotated[Lower, Query()]),
    ],
)
def test_no_other_name_and_no_model_is_a_way_around_a_decision(client: Embedded, query: str, parameter: Any) -> None:
    app = FastAPI()
    needed = Requires("read", "dataset", arg="q", guard=client, user=signed_in)

    def search(q: Any) -> str:
        return str(q)

    search.__annotations__["q"] = parameter
    app.get("/search", dependencies=[Depends(needed)])(search)
    with serving(app) as url:
        assert ask(url, "ben", "GET", f"/search?{query}").status_code == 400
