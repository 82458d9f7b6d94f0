"""A push to a server with Gravitino's paths, and the import of what it then holds, which is the same state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from authzen_server import Server
from store_server import ask, serve_store, token, write_tokens

from privtab.base import Entity, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Assignment, Grant, State
from privtab.state.nodes import Effect
from privtab_connect.errors import PushError
from privtab_connect.importing import document as import_document
from privtab_connect.importing.answers import opened
from privtab_connect.importing.run import run
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import load
from privtab_connect.pushdown.run import PushReport, push
from privtab_server.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program("gravitino/1.1.0")


@pytest.fixture
def server(tmp_path: Path, program: Program) -> Iterator[Server]:
    """A store behind the paths of Gravitino, with a metalake and a catalog."""
    url = tmp_path / "grants.db"
    Store.create(str(url), program, administrators=["admin"])
    tokens = write_tokens(tmp_path / "tokens", ["admin"])
    started = serve_store(tmp_path, [url, "-p", "gravitino/1.1.0", "--api", "gravitino", "--token-file", tokens])
    catalogs = "//api/metalakes/prod/catalogs"
    for path, body in (
        ("//api/metalakes", {"name": "prod"}),
        (catalogs, {"name": "hive", "type": "RELATIONAL", "provider": "hive"}),
        (f"{catalogs}/hive/schemas", {"name": "sa les"}),
        (f"{catalogs}/hive/schemas", {"name": "of ann"}),
        (f"{catalogs}/hive/schemas/sa%20les/tables", {"name": "o%r/ders"}),
    ):
        assert ask(started, "POST", path, "admin", body).status_code == 200
    yield started
    assert started.stop() == 0


Pusher = Callable[..., PushReport]


@pytest.fixture
def pushes(server: Server, program: Program, tmp_path: Path) -> Pusher:
    document = load("gravitino", program, {"metalake": "prod"})

    def call(state: State, **options: object) -> PushReport:
        reached = Options(token=token("admin"), record=tmp_path / "record.json")
        options = {"pusher": "gravitino", "apply": True, "options": reached, **options}
        return push(program, state, document, server.url, **options)  # type: ignore[arg-type]

    return call


def imported(server: Server, program: Program) -> State:
    with opened(server.url, token=token("admin")) as answers:
        return run(import_document.load("gravitino"), answers, program, values={"metalake": "prod"}).state


def grant(role: str, effect: Effect, privilege: str, entity: str) -> Grant:
    return Grant(grantee=f"role:prod/{role}", effect=effect, privilege=privilege, entity=Entity.parse(entity))


STATE = State(
    assignments=(
        Assignment(principal="user:ann", role="prod/ana lyst"),
        Assignment(principal="user:o'neil/1", role="prod/ana lyst"),
        Assignment(principal="group:hr", role="prod/temp"),
    ),
    grants=(
        grant("ana lyst", "allow", "USE_CATALOG", "catalog:prod/hive"),
        grant("ana lyst", "allow", "SELECT_TABLE", "schema:prod/hive/sa les"),
        grant("ana lyst", "allow", "MODIFY_TABLE", "schema:prod/hive/sa les"),
        grant("temp", "deny", "SELECT_TABLE", "table:prod/hive/sa les/o%25r%2Fders"),
        grant("temp", "allow", "CREATE_CATALOG", "metalake:prod"),
    ),
    owners=((Entity.parse("schema:prod/hive/of ann"), "user:ann"),),
)


def rows(state: State) -> tuple[object, ...]:
    """What a push writes; ownership as far as it is of the state."""
    return set(state.grants), set(state.assignments), {row for row in state.owners if row[1] != "user:admin"}


def test_a_pushed_state_is_imported_again(server: Server, program: Program, pushes: Pusher) -> None:
    shown = pushes(STATE, apply=False)
    assert not imported(server, program).grants
    pushed = pushes(STATE, compare=True)
    assert pushed.applied
    assert pushed.requests == shown.requests
    assert 'PUT /api/metalakes/prod/permissions/roles/ana%20lyst/schema/hive.sa%20les/grant {"privileges": ' in str(
        pushed.requests
    )
    assert rows(imported(server, program)) == rows(STATE)
    assert not pushes(STATE, apply=False).requests
    fewer = replace(STATE, grants=STATE.grants[1:4], assignments=STATE.assignments[1:])
    pushes(fewer)
    assert rows(imported(server, program)) == rows(fewer)
    pushes(State(grants=()))
    left = imported(server, program)
    assert (left.grants, left.assignments) == ((), ())
    assert (Entity.parse("schema:prod/hive/of ann"), "user:ann") in left.owners, "somebody has to own it"


def test_a_role_is_named_by_the_path_in_its_metalake_or_by_its_last_name(pushes: Pusher) -> None:
    def placed(place: str) -> State:
        given = (replace(row, role=row.role.replace("prod/", place)) for row in STATE.assignments)
        granted = (replace(row, grantee=row.grantee.replace("prod/", place)) for row in STATE.grants)
        return replace(STATE, assignments=tuple(given), grants=tuple(granted))

    assert pushes(placed(""), apply=False).requests == pushes(STATE, apply=False).requests
    assert "roles" not in str(pushes(placed("lab/"), apply=False).requests)


def test_an_imported_state_in_a_store_is_what_was_imported(
    server: Server, program: Program, pushes: Pusher, tmp_path: Path
) -> None:
    pushes(STATE)
    state = imported(server, program)
    # A source that tells no owners of roles.
    owners = [row for row in state.owners if row[0].type != "role"]
    folder = tmp_path / "loaded"
    folder.mkdir()
    url, tokens = folder / "grants.db", write_tokens(folder / "tokens", ["admin"])
    store = Store.create(str(url), program, administrators=["admin"])
    store.load(replace(state, owners=tuple(owners)).to_tables(), actor="admin")
    loaded = serve_store(folder, [url, "-p", "gravitino/1.1.0", "--api", "gravitino", "--token-file", tokens])
    try:
        assert ask(loaded, "GET", "//api/metalakes/prod/roles", "admin").json()["names"] == ["ana lyst", "temp"]
        # A group of no place is listed where it was added, which rows do not tell.
        held = [row for row in state.assignments if row.principal.startswith("user:")]
        assert rows(imported(loaded, program)) == rows(replace(state, assignments=tuple(held)))
    finally:
        assert loaded.stop() == 0


def test_foreign_rights_stay_unless_revoking_them_is_requested(
    server: Server, program: Program, pushes: Pusher, tmp_path: Path
) -> None:
    pushes(STATE)
    (tmp_path / "record.json").unlink()
    found = pushes(State(grants=()))
    assert not found.plan.changes
    assert "SELECT_TABLE on schema hive/sa les to role ana lyst" in map(str, found.plan.foreign)
    assert rows(imported(server, program)) == rows(STATE)
    pushes(State(grants=()), revoke_foreign=True)
    assert not imported(server, program).grants


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            State(grants=(replace(STATE.grants[0], grantee="user:ann"),)),
            "gives privileges to roles only, and not to login ann",
        ),
        (State(grants=(grant("x", "allow", "USE_CATALOG", "catalog:prod/a.b"),)), "has a dot"),
        (
            State(assignments=(Assignment(principal="user:a", role="r", scope=Entity("metalake", "prod")),)),
            "held within",
        ),
    ],
)
def test_rights_that_gravitino_cannot_express_are_findings(pushes: Pusher, state: State, message: str) -> None:
    assert [message in finding.message for finding in pushes(state).desired.findings] == [True]


def test_the_record_of_another_target_is_refused(pushes: Pusher, server: Server, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    pushes(STATE)
    assert json.loads(record.read_text(encoding="utf-8"))["target"] == server.url
    with pytest.raises(PushError, match=r"is the record of a push to http.* as `gravitino`"):
        pushes(STATE, pusher="other")
    record.write_text("[]", encoding="utf-8")
    with pytest.raises(PushError, match="is no record of a push"):
        pushes(STATE)
    with pytest.raises(UsageError, match="--record FILE"):
        pushes(STATE, options=Options(token=token("admin")))


def test_a_refused_request_says_which_one_and_the_next_push_goes_on(
    server: Server, program: Program, pushes: Pusher, tmp_path: Path
) -> None:
    with pytest.raises(PushError, match="answered 401"):
        pushes(STATE, options=Options(token="wrong", record=tmp_path / "record.json"))  # noqa: S106  (no token)
    gone = replace(STATE, owners=((Entity.parse("schema:prod/hive/of ann"), "group:hr"),))
    with pytest.raises(PushError, match=r"PUT /api/metalakes/prod/owners/schema/hive\.of%20ann"):
        pushes(gone)
    assert set(imported(server, program).grants) == set(STATE.grants), "what came before it"
    pushes(STATE)
    assert rows(imported(server, program)) == rows(STATE)
