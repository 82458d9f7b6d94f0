"""Guarded functions: asked before they run, by their arguments, in the name of whoever acts."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
import required_flag_policy
from checkout import PYTHONPATH

from privtab import AccessDenied, AsyncClient, Client, DecisionUnavailable, Entity, InvalidRequest
from privtab.base import UsageError
from privtab.bundle import state_bundle
from privtab.client import Embedded
from privtab.engines import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import Grant, State
from privtab_web import Caller, Guard, acting_as, allowed, bind, caller, decision, requires
from privtab_web._answers import Unauthenticated


@pytest.fixture
def guard(client: Embedded) -> Guard:
    return Guard(client)


@pytest.fixture
def ran() -> list[Any]:
    return []


def test_a_function_runs_for_an_allow_and_does_not_begin_for_a_denial(guard: Guard, ran: list[Any]) -> None:
    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> str:
        ran.append(path)
        return path.upper()

    with acting_as("ann"):
        assert read("web/clicks") == "WEB/CLICKS"
        assert read(path="web/clicks") == "WEB/CLICKS"
    with acting_as("ben"), pytest.raises(AccessDenied, match="blocked by a denial of READ"):
        read("web/salaries")
    assert ran == ["web/clicks"] * 2


def test_the_wrapper_keeps_name_and_signature(guard: Guard) -> None:
    def read(path: str, *, limit: int = 3) -> str:
        """Reads."""
        return path * limit

    guarded = guard.requires("read", "dataset", arg="path")(read)
    assert (guarded.__name__, guarded.__doc__) == ("read", "Reads.")
    assert inspect.signature(guarded) == inspect.signature(read)
    assert not inspect.iscoroutinefunction(guarded)


def test_a_guard_needs_a_user_and_an_operation(guard: Guard, ran: list[Any]) -> None:
    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> None:
        ran.append(path)

    for who in (None, ""):
        with acting_as(who), pytest.raises(Unauthenticated):
            read("web/clicks")
    with pytest.raises(Unauthenticated):
        read("web/clicks")
    assert ran == []


def test_each_argument_of_a_template_is_one_name(guard: Guard) -> None:
    @guard.requires("read", "dataset:{project}/{name}")
    def read(name: str, project: str = "web") -> str:
        return f"{project}/{name}"

    with acting_as("ann"):
        assert read("clicks") == "web/clicks"
        with pytest.raises(AccessDenied, match=r"dataset:web%2Fclicks/x"):
            read("x", project="web/clicks")
        with pytest.raises(InvalidRequest, match="`project` is ''"):
            read("clicks", "")


@pytest.mark.parametrize("value", [None, "", True, 1.5, ["web/x"], b"web/x", Entity("project", "web")])
def test_arguments_that_name_no_entity_are_refused(guard: Guard, ran: list[Any], value: Any) -> None:
    @guard.requires("read", "dataset", arg="path")
    def read(path: Any) -> None:
        ran.append(path)

    with acting_as("ann"), pytest.raises(InvalidRequest):
        read(value)
    assert ran == []


def test_a_question_is_about_the_argument_that_the_function_gets(guard: Guard) -> None:
    @guard.requires("read", "dataset", arg="path")
    def by_place(path: str, /, **more: str) -> str:
        return path

    @guard.requires("read", "dataset", arg="path")
    def by_name(*more: str, path: str = "web/salaries") -> str:
        return path

    @guard.requires("read", "dataset", arg="path")
    def either(other: str = "", path: str = "web/salaries", **more: str) -> str:
        return path

    with acting_as("ben"):
        assert by_place("web/clicks", path="web/salaries") == "web/clicks"
        assert by_name("web/salaries", path="web/clicks") == "web/clicks"
        assert either("web/salaries", "web/clicks") == "web/clicks"
        calls: tuple[Callable[[], str], ...] = (
            lambda: by_place("web/salaries", path="web/clicks"),
            lambda: by_name("web/clicks"),
            by_name,
            lambda: either("web/clicks"),
            lambda: either(other="web/clicks", more="web/clicks"),
        )
        for refused in calls:
            with pytest.raises(AccessDenied):
                refused()
        with pytest.raises(TypeError):
            either("", "web/clicks", path="web/clicks")  # type: ignore[misc]
    with pytest.raises(UsageError, match="no argument `more`"):
        guard.requires("read", "dataset", arg="more")(by_name)


def test_a_call_that_does_not_fit_the_function_is_a_type_error(guard: Guard) -> None:
    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> str:
        return path

    with acting_as("ann"), pytest.raises(TypeError, match="missing"):
        read()  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [7, UUID(int=7)])
def test_numbers_and_uuids_are_names(guard: Guard, value: Any) -> None:
    @guard.requires("read", "dataset:web/{name}")
    def read(name: Any) -> Any:
        return name

    with acting_as("ann"):
        assert read(value) == value


def test_entities_functions_with_objects_and_flags(guard: Guard) -> None:
    @guard.requires("copy", "dataset", arg="what", with_={"to": "project:{to}"}, flags={"replace": "over"})
    def copy(what: Entity, to: str, over: bool = False) -> str:
        return f"{what} to {to}, {over}"

    @guard.requires("read", lambda row: Entity("dataset", row["path"]))
    def read(row: dict[str, str]) -> str:
        return row["path"]

    clicks = Entity("dataset", "web/clicks")
    with acting_as("ann"):
        assert copy(clicks, "web") == "dataset:web/clicks to web, False"
        with pytest.raises(AccessDenied):
            copy(clicks, "lab")
        with pytest.raises(AccessDenied, match="owner"):
            copy(clicks, "web", over=True)
        assert read({"path": "web/clicks"}) == "web/clicks"


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """A policy whose requests must say whether `pii` is set; ann reads files, and carl what is secret in them, too."""
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "clinic.yaml").write_text(required_flag_policy.POLICY, encoding="utf-8")
    program = load_program(folder / "clinic.yaml")
    file = Entity("file", "w/1")
    grants = [("user:ann", "READ"), ("user:carl", "READ"), ("user:carl", "SECRET")]
    state = State(
        grants=tuple(Grant(grantee=who, effect="allow", privilege=privilege, entity=file) for who, privilege in grants)
    )
    for name, bundle in (("policy", policy_artifacts(program).bundle()), ("state", state_bundle(program, state))):
        (folder / f"{name}.tar.gz").write_bytes(bundle)
    with Embedded(folder) as embedded:
        yield embedded


def test_an_argument_says_a_required_flag_in_both_ways(clinic: Embedded) -> None:
    @Guard(clinic).requires("read", "file", arg="path", flags={"pii": "secret"})
    def read(path: str, secret: bool = False) -> bool:
        return secret

    with acting_as("ann"):
        assert read("w/1") is False
        with pytest.raises(AccessDenied, match="SECRET"):
            read("w/1", secret=True)
    with acting_as("carl"):
        assert read("w/1", secret=True) is True


def test_a_guard_without_a_required_flag_denies_everyone(clinic: Embedded) -> None:
    @Guard(clinic).requires("read", "file", arg="path")
    def read(path: str) -> str:
        raise AssertionError("it ran")

    with acting_as("carl"), pytest.raises(InvalidRequest, match="needs the flag `pii`"):
        read("w/1")


def test_groups_of_the_caller_go_with_the_request(guard: Guard) -> None:
    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> str:
        return path

    with acting_as("gus"), pytest.raises(AccessDenied):
        read("lab/open")
    with acting_as("gus", groups=["guests"]) as who:
        assert who == Caller(user="gus", groups=("guests",)) == caller()
        assert read("lab/open") == "lab/open"


def test_the_decision_is_at_hand_inside_and_gone_outside(guard: Guard) -> None:
    @guard.requires("create", "dataset", arg="path")
    def create(path: str) -> tuple[str, ...]:
        found = decision()
        assert found is not None
        return found.effects

    with acting_as("ann"):
        assert create("web/new") == ("become owner (dataset:web/new)",)
        with guard.allowed("read", "dataset:web/clicks") as outer:
            create("web/new")
            assert decision() is outer
    assert decision() is None


def test_a_block_is_entered_for_an_allow_alone(guard: Guard) -> None:
    with acting_as("ben"), guard.allowed("read", "dataset:web/clicks") as found:
        assert found.rule == "studio/dataset/read"
    with acting_as("ben"), pytest.raises(AccessDenied), guard.allowed("read", "dataset:web/salaries"):
        pytest.fail("entered")


def test_the_caller_is_reset_at_the_end_of_the_block() -> None:
    with acting_as("ann"):
        with acting_as("ben"):
            assert caller() == Caller(user="ben")
        with acting_as(None):
            assert caller() is None
        assert caller() == Caller(user="ann")
    assert caller() is None
    with pytest.raises(TypeError, match="not a dict"), acting_as({"user": "ann"}):  # type: ignore[arg-type]
        pass


def test_the_user_may_come_from_elsewhere(client: Embedded) -> None:
    guard = Guard(client, user=lambda: "ben")

    @guard.requires("read", "dataset", arg="path", user=lambda: "ann")
    def as_ann(path: str) -> str:
        return path

    @guard.requires("read", "dataset", arg="path")
    def as_ben(path: str) -> str:
        return path

    assert as_ann("web/salaries") == "web/salaries"
    with pytest.raises(AccessDenied):
        as_ben("web/salaries")


def test_coroutines_and_generators_keep_their_kind(guard: Guard) -> None:
    @guard.requires("read", "dataset", arg="path")
    async def read(path: str) -> str:
        assert decision() is not None
        return path

    @guard.requires("read", "dataset", arg="path")
    async def rows(path: str) -> AsyncIterator[int]:
        for at in range(len(path)):
            yield at

    @guard.requires("read", "dataset", arg="path")
    def lines(path: str) -> Iterator[str]:
        yield path

    async def run() -> None:
        assert inspect.iscoroutinefunction(read)
        with acting_as("ann"):
            assert await read("web/x") == "web/x"
            assert [at async for at in rows("web/x")] == [0, 1, 2, 3, 4]
            assert list(lines("web/x")) == ["web/x"]
        with acting_as("ben"):
            with pytest.raises(AccessDenied):
                await read("web/salaries")
            with pytest.raises(AccessDenied):
                [at async for at in rows("web/salaries")]
            with pytest.raises(AccessDenied):
                lines("web/salaries")

    asyncio.run(run())


def test_tasks_at_the_same_time_act_each_for_their_own(guard: Guard) -> None:
    @guard.requires("read", "dataset", arg="path")
    async def read(path: str) -> str | None:
        await asyncio.sleep(0.01)
        who = caller()
        return None if who is None else who.user

    async def read_as(user: str) -> str | None:
        with acting_as(user):
            try:
                return await read("web/salaries")
            except AccessDenied:
                return None

    async def run() -> list[str | None]:
        return await asyncio.gather(*(read_as(user) for user in ("ann", "ben") * 10))

    assert asyncio.run(run()) == ["ann", None] * 10


def test_an_asynchronous_client_is_asked_by_coroutines_alone(opa: OpaServer) -> None:
    async def run() -> None:
        async with AsyncClient(opa.url, system="studio") as client:
            guard = Guard(client)

            @guard.requires("read", "dataset", arg="path")
            async def read(path: str) -> str:
                return path

            @guard.requires("read", "dataset", arg="path")
            def read_now(path: str) -> str:
                return path

            with acting_as("ben"):
                assert await read("web/clicks") == "web/clicks"
                with pytest.raises(AccessDenied):
                    await read("web/salaries")
                async with guard.allowed("read", "dataset:web/clicks") as found:
                    assert found.allowed
                with pytest.raises(UsageError, match="async functions"):
                    read_now("web/clicks")

    asyncio.run(run())


def test_without_an_answer_nothing_runs(nobody_there: Client, ran: list[Any]) -> None:
    guard = Guard()

    @guard.requires("read", "dataset", arg="path")
    def read(path: str) -> None:
        ran.append(path)

    with acting_as("ann"):
        with pytest.raises(DecisionUnavailable, match="no decision point is bound"):
            read("web/clicks")
        guard.bind(nobody_there)
        with pytest.raises(DecisionUnavailable, match="did not answer"):
            read("web/clicks")
    assert ran == []


def test_the_functions_of_the_module_share_one_guard(client: Embedded) -> None:
    @requires("read", "dataset", arg="path")
    def read(path: str) -> str:
        return path

    bind(client)
    try:
        with acting_as("ann"), allowed("read", "dataset:web/clicks"):
            assert read("web/clicks") == "web/clicks"
    finally:
        bind(None)
    with acting_as("ann"), pytest.raises(DecisionUnavailable):
        read("web/clicks")


def test_modes_hold_for_guarded_functions(bundles: Any, caplog: pytest.LogCaptureFixture) -> None:
    for mode, logged in (("observe", True), ("off", False)):
        with Embedded(*bundles, mode=mode) as client:
            guard = Guard(client)

            @guard.requires("read", "dataset", arg="path")
            def read(path: str) -> str:
                return path

            caplog.clear()
            with acting_as("ben"):
                assert read("web/salaries") == "web/salaries"
            assert read("web/clicks") == "web/clicks", "nobody passes too"
            assert read("") == "", "and what makes no question"
            assert ("would be denied" in caplog.text) is logged


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"resource": "dataset", "arg": "other"}, "no argument `other`"),
        ({"resource": "dataset:{a}/{b}"}, "no argument `[ab]`"),
        ({"resource": "dataset"}, "a type and `arg`"),
        ({"resource": "dataset:{path.name}"}, "between the braces"),
        ({"resource": "dataset:{path!r}"}, "between the braces"),
        ({"resource": "dataset:{path"}, "dataset:"),
        ({"resource": "dataset:{path}", "arg": "path"}, "a type alone"),
        ({"resource": ("dataset",)}, "a pair"),
        ({"resource": "dataset", "arg": "path", "flags": "replace"}, "a list of names"),
        ({"resource": "dataset", "arg": "path", "flags": {"replace": "over"}}, "no argument `over`"),
        ({"resource": "dataset", "arg": "path", "with_": {"to": "project"}}, r"with_\['to'\]"),
    ],
)
def test_a_request_that_can_never_be_decided_is_refused_when_it_is_declared(
    guard: Guard, arguments: dict[str, Any], says: str
) -> None:
    def read(path: str) -> None: ...

    with pytest.raises(UsageError, match=says):
        guard.requires("read", **arguments)(read)


def test_the_decorator_takes_functions_alone(guard: Guard) -> None:
    class Reads:
        def __call__(self, path: str) -> None: ...

    with pytest.raises(UsageError, match="on functions"):
        guard.requires("read", "dataset", arg="path")(Reads())
    with pytest.raises(UsageError, match="below `@staticmethod`"):
        guard.requires("read", "dataset", arg="path")(staticmethod(len))


def test_guards_need_the_base_install_alone() -> None:
    heavy = ("fastapi", "starlette", "opentelemetry", "httpx", "yaml", "rich")
    modules = "privtab_web, privtab_web.asgi, privtab_web.wsgi, privtab_web.log"
    program = f"import sys, {modules}, privtab_web.trace; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": PYTHONPATH},
    )
    assert done.stdout.strip() == "[]"
