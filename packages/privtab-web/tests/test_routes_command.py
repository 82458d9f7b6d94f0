"""`privtab routes`: what fails, what is listed, and where mistakes in documents are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import studio_policy
from checkout import ROOT

from privtab.command._app import run

APP = """\
from fastapi import Depends, FastAPI
from privtab_web import Guard
from privtab_web.fastapi import Requires

guard = Guard()
app = FastAPI(openapi_url=None)


@app.get("/health")
def health() -> str:
    return "up"


@app.get("/datasets/{path:path}", dependencies=[Depends(Requires("read", "dataset", arg="path", guard=guard))])
def dataset(path: str) -> str:
    return path


@app.delete("/datasets/{path:path}")
def delete(path: str) -> str:
    with guard.allowed("create", ("dataset", path)):
        return path


documented = FastAPI()


def made() -> FastAPI:
    return app
"""
OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Todo", "version": "1.1"},
    "paths": {
        "/todos": {"get": {}, "post": {}},
        "/todos/{todoId}": {"put": {}, "delete": {"x-privtab": {"open": "of the tests"}}},
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "studio.yaml").write_text(studio_policy.POLICY, encoding="utf-8")
    (tmp_path / "service.py").write_text(APP, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("service", None)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["routes", *arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_a_route_without_a_decision_fails_until_it_is_listed_with_a_reason(here: Path, capsys: Any) -> None:
    assert ran(capsys, "service:app", "-p", "studio.yaml") == (
        1,
        *ran(capsys, "service:made()", "-p", "studio.yaml")[1:],
    )
    code, out, err = ran(capsys, "service:app", "-p", "studio.yaml")
    assert (code, err) == (1, "")
    assert lines(out) == [
        "method route row by status why",
        "GET /health ungated nothing guards it",
        "GET /datasets/{path:path} dataset/read dependency guarded",
        "DELETE /datasets/{path:path} ungated nothing guards it",
        "3 routes: 1 guarded, 2 ungated",
        "no route uses dataset/create, dataset/list, dataset/copy",
        "a route without a decision is accepted in privtab-routes.yaml, with a reason:",
        "GET /health: {open: WHY}",
    ]
    listed = here / "privtab-routes.yaml"
    entry = '  DELETE /datasets/{path:path}: {action: create, resource: "dataset:{path}"}\n'
    listed.write_text(f"routes:\n  GET /health: {{open: asked by machines}}\n{entry}", encoding="utf-8")
    code, out, _ = ran(capsys, "service:app", "-p", "studio.yaml", "--probe")
    assert code == 1, "what a document says of an application is no proof"
    assert (
        "DELETE /datasets/{path:path} dataset/create mapping not guarded its guard is declared and was not seen: `--probe` asks it"
        in lines(out)
    )
    code, out, err = ran(capsys, "service:app", "--probe", "all", "-p", "studio.yaml")
    assert (code, err) == (0, "")
    assert "3 routes: 2 proved, 1 open" in lines(out)
    assert "no route uses dataset/list, dataset/copy" in lines(out)
    listed.write_text(
        f"routes:\n  GET /health: {{open: asked by machines}}\n{entry.replace('create', 'list')}", encoding="utf-8"
    )
    code, out, _ = ran(capsys, "service:app", "--probe=all", "-p", "studio.yaml")
    assert (code, "asks `dataset/create`, not `dataset/list`" in out) == (1, True)


def test_formats(here: Path, capsys: Any) -> None:
    code, out, _ = ran(capsys, "service:app", "--format", "json", "-p", "studio.yaml")
    document = json.loads(out)
    assert (code, [one["status"] for one in document["routes"]]) == (1, ["ungated", "guarded", "ungated"])
    assert document["routes"][1]["guards"] == [{"by": "dependency", "row": "dataset/read"}]
    assert [(one["code"], one["path"], one["line"]) for one in document["findings"]] == [
        ("R003", "service.py", 9),
        ("R003", "service.py", 19),
    ]
    assert document["unused_rows"] == ["dataset/create", "dataset/list", "dataset/copy"]
    code, out, _ = ran(capsys, "service:documented", "--format", "json")
    assert {one["path"] for one in json.loads(out)["findings"]} == {"service.py"}, "frameworks' handlers are no place"
    code, out, _ = ran(capsys, "service:app", "--format", "csv")
    assert out.splitlines()[:2] == ["method,route,row,by,status,why", "GET,/health,,,ungated,nothing guards it"]
    code, out, _ = ran(capsys, "service:app", "--format", "markdown")
    assert "| GET | `/health` |  |  | ungated | nothing guards it |" in out.splitlines()
    code, _, err = ran(capsys, "service:app", "--format", "sarif", "-o", "routes.sarif")
    (sarif,) = json.loads((here / "routes.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in sarif["results"]] == ["R003", "R003"]
    assert (code, err) == (1, "3 routes: 1 guarded, 2 ungated; written to routes.sarif\n")


def test_a_gateway_decides_by_methods_and_paths(here: Path, capsys: Any) -> None:
    (here / "todo.json").write_text(json.dumps(OPENAPI, indent="\t"), encoding="utf-8")
    policy = str(ROOT / "examples" / "authzen" / "todo.yaml")
    assert ran(capsys, "todo.json", "-p", policy)[0] == 1
    (here / "routes.yaml").write_text("gateway: route\n", encoding="utf-8")
    code, out, err = ran(capsys, "todo.json", "-p", policy, "--listed", "routes.yaml")
    assert (code, err) == (0, "")
    assert lines(out)[1:5] == [
        "GET /todos route/GET gateway guarded",
        "POST /todos route/POST gateway guarded",
        "PUT /todos/{todoId} route/PUT gateway guarded",
        "DELETE /todos/{todoId} open of the tests",
    ]
    (here / "routes.yaml").write_text("gateway: rout\n", encoding="utf-8")
    code, _, err = ran(capsys, "todo.json", "-p", policy, "--listed", "routes.yaml")
    assert (code, err.count("did you mean `route`?")) == (1, 3)
    # An application can be asked, and no gateway can be seen in it.
    code, _, err = ran(capsys, "service:app", "--listed", "routes.yaml")
    assert (code, "routes.yaml:1:10: error[R001 bad-route-document]" in err) == (1, True)


def test_swagger_and_every_mistake_at_its_place(here: Path, capsys: Any) -> None:
    (here / "api.yaml").write_text(
        """\
swagger: "2.0"
paths:
  /datasets/{project}/{name}:
    parameters:
      - {in: path, name: project}
      - $ref: "#/parameters/name"
    get:
      x-privtab: {action: raed, resource: "dataset:{project}/{name}"}
    put:
      x-privtab: {action: create, resource: "dataset:{project}/{nme}"}
    post:
      x-privtab: {action: copy, resource: "dataset:{project}/{name}"}
    delete:
      x-privtab: {action: read, resource: dataset, arg: name, open: both}
    patch:
      x-privtab: {action: copy, resource: "dataset:{project}/{name}", with: {to: "project:{project}"}}
    gett: {}
  /elsewhere:
    $ref: "other.yaml#/x"
  /circle:
    $ref: "#/paths/~1circle"
  /twice:
    get:
      x-privtab: {open: here}
parameters:
  name: {in: path, name: name}
""",
        encoding="utf-8",
    )
    (here / "privtab-routes.yaml").write_text(
        "routes:\n  GET POST /gone: {open: no reason}\n  GET /twice: {open: there}\n  get /x: {}\n  GET /y: {opn: z}\n",
        encoding="utf-8",
    )
    code, out, err = ran(capsys, "api.yaml", "-p", "studio.yaml")
    places = [line.partition(" error")[0] + line.partition("]:")[2] for line in err.splitlines() if "error[" in line]
    assert code == 1
    assert places == [
        "api.yaml:8:18: `GET /datasets/{project}/{name}`: unknown operation `raed` on `dataset`",
        "api.yaml:10:18: `PUT /datasets/{project}/{name}` has no parameter `nme`",
        "api.yaml:12:18: `POST /datasets/{project}/{name}`: `dataset/copy` also needs `to`",
        "api.yaml:14:69: `DELETE /datasets/{project}/{name}` is open without a reason alone",
        "api.yaml:17:5: unknown key `gett` in `/datasets/{project}/{name}`",
        "api.yaml:19:11: `other.yaml#/x` is not in this file",
        "api.yaml:21:11: `#/paths/~1circle` is not in this file",
        "privtab-routes.yaml:2:3: there is no route `GET /gone`",
        "privtab-routes.yaml:2:3: there is no route `POST /gone`",
        "privtab-routes.yaml:3:3: `GET /twice` also has an entry at api.yaml:24",
        "privtab-routes.yaml:4:3: `get /x` is no route",
        "privtab-routes.yaml:5:12: unknown key `opn` in `GET /y`",
    ]
    assert "PATCH /datasets/{project}/{name} dataset/copy x-privtab guarded" in lines(out)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("openapi: 4.0.0\npaths: {}\n", "has version `4.0.0`"),
        ("info: {}\n", "has no version"),
        ("openapi: 3.0.0\n", "has no `paths`"),
        ("[]\n", "has no version"),
        ("openapi: 3.0.0\npaths: [a]\n", "`paths` is a list"),
        ("openapi: 3.0.0\npaths: {/a: {get: {x-privtab: read}}}\n", "is `read`, not a mapping"),
        ("openapi: 3.0.0\npaths: {/a: [x]}\n", "`/a` is a list"),
        ("openapi: 3.0.0\npaths: {/a: {get: &x {}}}\n", "anchor"),
        ("", "empty"),
    ],
)
def test_a_description_that_is_none_fails(here: Path, capsys: Any, text: str, says: str) -> None:
    (here / "api.yaml").write_text(text, encoding="utf-8")
    code, _, err = ran(capsys, "api.yaml")
    assert code == 1
    assert says in err


def test_wrong_usage(here: Path, capsys: Any) -> None:
    (here / "api.yaml").write_text(json.dumps(OPENAPI), encoding="utf-8")
    (here / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    for arguments, says in (
        (["api.yaml", "--probe"], "`--probe` asks an application"),
        (["nothing:app"], "no application `nothing:app`: ModuleNotFoundError"),
        (["service:ap"], "no application `service:ap`: AttributeError"),
        (["broken:app"], "no application `broken:app`: ZeroDivisionError"),
        (["service"], "a module without `urlpatterns`"),
        (["service:app", "-H", "x"], "`--header x`: write NAME:VALUE"),
    ):
        code, out, err = ran(capsys, *arguments)
        assert (code, out, says in err) == (2, "", True), (arguments, err)


def test_nothing_is_asked_while_the_file_of_routes_has_mistakes(here: Path, capsys: Any) -> None:
    (here / "service.py").write_text(
        APP.replace('return "up"', 'open("ran", "w").close(); return "up"'), encoding="utf-8"
    )
    (here / "privtab-routes.yaml").write_text("routes: {GET /health: {}}\n", encoding="utf-8")
    assert ran(capsys, "service:app", "--probe", "all")[0] == 1
    assert not (here / "ran").exists()
    (here / "privtab-routes.yaml").unlink()
    assert ran(capsys, "service:app", "--probe")[0] == 1
    assert (here / "ran").exists(), "a handler without a guard runs"


def test_an_entry_for_a_route_that_is_guarded_is_a_finding(here: Path, capsys: Any) -> None:
    listed = here / "privtab-routes.yaml"
    listed.write_text(
        "routes:\n  GET DELETE /datasets/{path:path}: {open: once}\n  GET /health: {open: machines}\n", encoding="utf-8"
    )
    code, _, err = ran(capsys, "service:app")
    assert (code, err.splitlines()[0]) == (
        1,
        "privtab-routes.yaml:2:3: error[R002 unused-route-entry]: `GET /datasets/{path:path}` is guarded, and listed as open",
    )
