"""Policies and states that are kept: `-s state.tar.gz`, `-s registry:PATH#prod@12`, and `privtab registry get`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from example_bundles import STATES, ExampleBundles, bundles, program

from privtab.command._app import run
from privtab.state import from_tables, load_raw_state, validate
from privtab_server.registry import Registry
from privtab_server.registry_states import ChannelReference, place_of

ASKED = [
    {"subject": {"type": "user", "id": user}, "action": {"name": action}, "resource": {"type": "item", "id": item}}
    for user in ("ann", "ben", "olga", "nobody")
    for action in ("read", "write")
    for item in ("s/a/i", "s/b/i", "other/a/i")
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ExampleBundles:
    return bundles(tmp_path_factory.mktemp("shelf"))


@pytest.fixture
def registry(tmp_path: Path, packed: ExampleBundles) -> Registry:
    """Release 1: the first policy and state; 2: the second policy and state; 3: the last state in shards."""
    registry = Registry.open(str(tmp_path / "registry"))
    policies = [registry.put(policy).id for policy in packed.policies]
    states = [registry.put(state).id for state in packed.states]
    registry.release("prod", "shop", policy=policies[0], state=states[0])
    registry.release("prod", "shop", policy=policies[1], state=states[1])
    shards = {shard: registry.put(bundle).id for shard, bundle in packed.shards.items()}
    registry.release("prod", "shop", policy=registry.put(packed.sharded).id, shards=shards)
    return registry


def answers(capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: object, state: object) -> list[bool]:
    requests_file = tmp_path / "asked.jsonl"
    requests_file.write_text("\n".join(map(json.dumps, ASKED)), encoding="utf-8")
    code = run(["decide", "-p", str(policy), "-s", str(state), "--requests", str(requests_file)])
    output = capsys.readouterr()
    assert code == 0, output.err
    return [json.loads(line)["decision"] for line in output.out.splitlines()]


@pytest.mark.parametrize("switch", [1, 2, 3])
def test_a_stored_revision_decides_like_the_files_it_was_built_from(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], switch: int
) -> None:
    policy = tmp_path / "shop-1.yaml"
    program(tmp_path)
    if switch == 2:
        program(tmp_path, version="2", read="READ (item) or owner (item)")
        policy = tmp_path / "shop-2.yaml"
    state = tmp_path / "state.yaml"
    state.write_text(STATES[switch - 1], encoding="utf-8")
    by_files = answers(capsys, tmp_path, policy, state)
    assert len(set(by_files)) == 2
    place = f"registry:{registry.url}#prod@{switch}"
    assert answers(capsys, tmp_path, place, place) == by_files
    if switch == 3:
        assert (
            answers(capsys, tmp_path, f"registry:{registry.url}#prod", f"registry:{registry.url}#prod/shop") == by_files
        )


@pytest.mark.parametrize("switch", [1, 3])
def test_get_writes_what_ran(
    registry: Registry, packed: ExampleBundles, tmp_path: Path, capsys: pytest.CaptureFixture[str], switch: int
) -> None:
    folder = tmp_path / "out"
    for _ in range(2):  # again, the same
        assert run(["registry", "get", registry.url, "prod", "shop", "--at", str(switch), "-o", str(folder)]) == 0
    written = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.tar.gz")}
    if switch == 1:
        assert written == {"policy.tar.gz": packed.policies[0], "state.tar.gz": packed.states[0]}
        capsys.readouterr()
        assert any(answers(capsys, tmp_path, folder / "policy.tar.gz", folder / "state.tar.gz"))
        assert run(["registry", "get", registry.url, "prod", "shop", "--at", "2", "-o", str(folder)]) == 2
        assert "`--replace` overwrites it" in capsys.readouterr().err
        assert (folder / "policy.tar.gz").read_bytes() == packed.policies[0]
        assert (
            run(["registry", "get", registry.url, "prod", "shop", "--only", "state", "--replace", "-o", str(folder)])
            == 0
        )
        assert (folder / "policy.tar.gz").read_bytes() == packed.policies[0]
    else:
        assert set(written.values()) == {packed.sharded, *packed.shards.values()}


def test_a_state_of_shards_is_whole_or_refused(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    run(["registry", "get", registry.url, "prod", "shop", "-o", str(folder)])
    capsys.readouterr()
    shard = next((folder / "shards").glob("site-*.tar.gz"))
    code = run(["what-can", "ann", "-p", str(folder / "policy.tar.gz"), "-s", str(shard)])
    assert code in (2, 3)
    assert "sharded" in capsys.readouterr().err


WRONG: dict[str, tuple[str, str]] = {
    "registry:/nowhere": ("write registry:URL#CHANNEL", "s"),
    "registry:/nowhere#prod": ("there is no registry at /nowhere", "s"),
    "registry:/nowhere#prod@x": (
        "`x` is neither the number of a release nor the 16 digits of a revision: write registry:/nowhere#prod@12",
        "s",
    ),
    "registry:{url}#prod/shop@9c1f": ("`9c1f` is neither the number of a release nor", "p"),
    "registry:{url}#prod@": ("`` is neither the number of a release nor", "p"),
    "registry:{url}#none": ("has no channel none", "p"),
    "registry:{url}#none/shop": ("has no channel none/shop", "s"),
    "registry:{url}#prod@99": ("had no release 99", "s"),
    "registry:{url}#prod/bakery": ("the policy is of shop, and the state would be of bakery", "s"),
    "none.tar.gz": ("no such bundle", "s"),
    "{policy}": ("holds no state of shop", "s"),
    "{state}": ("holds no program", "p"),
    "{broken}": ("cannot be read", "s"),
}


@pytest.mark.parametrize("argument", WRONG)
def test_missing_places_are_reported(
    registry: Registry, packed: ExampleBundles, tmp_path: Path, capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    files = {"policy": packed.policies[0], "state": packed.states[0], "broken": b"no bundle"}
    for name, content in files.items():
        (tmp_path / f"{name}.tar.gz").write_bytes(content)
    place = argument.format(url=registry.url, **{name: tmp_path / f"{name}.tar.gz" for name in files})
    says, option = WRONG[argument]
    policy, state = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    named = {"p": str(policy), "s": str(state), option: place}
    assert run(["who-can", "read", "item:s/a/i", "-p", named["p"], "-s", named["s"]]) in (2, 3)
    assert says in " ".join(capsys.readouterr().err.split())


def test_several_systems_are_distinguished(
    registry: Registry, packed: ExampleBundles, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.store.create("channels/prod/bakery/history/00000001.json", b"{}")
    assert run(["describe", f"registry:{registry.url}#prod"]) == 2
    assert "name one, as in #prod/bakery" in " ".join(capsys.readouterr().err.split())
    assert run(["describe", f"registry:{registry.url}#prod/shop"]) == 0


@pytest.mark.slow
def test_a_bundle_is_compiled_already(registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"registry:{registry.url}#prod"
    bundle = tmp_path / "policy.tar.gz"
    bundle.write_bytes(registry.read(registry.revisions("shop")[0]))
    assert run(["describe", f"{bundle}@x"]) == 2
    assert "is compiled already" in capsys.readouterr().err
    for argument in (place, str(bundle)):
        for command in (
            ["serve", "-p", argument, "-s", place],
            ["opa", "run", "-p", argument],
            ["compile", argument, "-o", str(tmp_path / "out")],
            ["deploy", argument, "--registry", registry.url, "--channel", "prod"],
            ["lint", argument],
            ["test", argument],
            ["fmt", argument],
        ):
            assert run(command) == 2, command
            assert "is compiled already: give the tables that it was made of" in " ".join(
                capsys.readouterr().err.split()
            )


@pytest.mark.slow
def test_diff_compares_what_runs_with_tables_and_with_what_ran(
    registry: Registry, packed: ExampleBundles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path)
    program(tmp_path, version="2", read="READ (item) or owner (item)")
    narrow, wide = str(tmp_path / "shop-1.yaml"), str(tmp_path / "shop-2.yaml")
    bundle = tmp_path / "wide.tar.gz"
    bundle.write_bytes(packed.policies[1])
    first, second = (f"registry:{registry.url}#prod@{switch}" for switch in (1, 2))

    def compared(before: str, after: str, *more: str) -> tuple[int, list[tuple[str, str]]]:
        code = run(["diff", before, after, "--format", "json", *more])
        document = json.loads(capsys.readouterr().out)
        operations = document["comparisons"][0]["operations"]
        return code, [
            (operation["operation"], operation["verdict"])
            for operation in operations
            if operation["verdict"] != "equal"
        ]

    for before in (first, narrow):
        for after in (second, str(bundle), wide):
            assert compared(before, after, "--fail-on", "wider") == (1, [("read", "wider")]), (before, after)
            assert compared(after, before, "--fail-on", "wider") == (0, [("read", "narrower")]), (before, after)
    assert compared(first, narrow, "--fail-on", "any") == (0, [])
    assert run(["diff", first]) == 2
    assert "has no version in git" in " ".join(capsys.readouterr().err.split())


def test_a_registry_that_requires_signatures_serves_only_signed_bundles(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from signing_keys import pair

    public = pair().public
    registry.init(verification_keys=[public], replace=True)
    place = f"registry:{registry.url}#prod@1"
    assert run(["describe", place]) != 0
    assert run(["registry", "get", registry.url, "prod", "shop", "--at", "1", "-o", str(tmp_path / "out")]) != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("registry:/srv/r#prod", ChannelReference(url="/srv/r", channel="prod")),
        ("registry:r#prod/lake@12", ChannelReference(url="r", channel="prod", system="lake", release=12)),
        (Path("registry:s3://b/r#prod@1"), ChannelReference(url="s3://b/r", channel="prod", release=1)),
        (Path("registry:https://x:8/r#prod"), ChannelReference(url="https://x:8/r", channel="prod")),
        ("registry:/odd#name#prod", ChannelReference(url="/odd#name", channel="prod")),
    ],
)
def test_references_to_channels_are_parsed(argument: str | Path, found: ChannelReference) -> None:
    assert place_of(argument) == found


@pytest.mark.parametrize("text", STATES)
def test_rows_are_the_same_after_a_round_trip(tmp_path: Path, text: str) -> None:
    """Rows of a state → as files have them → the same rows."""
    path = tmp_path / "state.yaml"
    path.write_text(text, encoding="utf-8")
    state, _ = validate(program(tmp_path), load_raw_state(path))
    again, findings = validate(program(tmp_path), from_tables(state.to_tables(), "again"))
    assert (again, findings) == (state, ())


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "stored": lambda url: ["status", f"--registry={url}", "--stored", "all", "--format", "json"],
    "get": lambda url: ["get", "prod", "-r", url, "shop", "-o", f"{url}-got"],
    "get 2": lambda url: ["get", "prod", "shop", "-o", f"{url}-got", "--registry", url],
    "check": lambda url: ["check", "-r", url],
    "gc": lambda url: ["check", "-r", url, "--keep", "3"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_registry_is_named_as_with_the_other_commands(
    registry: Registry, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(["registry", *COMMANDS[command](registry.url)]) == 0
    assert capsys.readouterr().out


def test_a_registry_of_the_environment(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIVTAB_REGISTRY", registry.url)
    assert run(["registry", "status", "--stored", "all"]) == 0
    assert "shop" in capsys.readouterr().out
