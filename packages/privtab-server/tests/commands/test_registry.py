"""`privtab registry`: what is put, what runs, what goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example_bundles import ExampleBundles, bundles

from privtab.command._app import run
from privtab_server.registry import Canary, Registry


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ExampleBundles:
    return bundles(tmp_path_factory.mktemp("shelf"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "registry")


@pytest.fixture
def files(tmp_path: Path, packed: ExampleBundles) -> Path:
    """Bundles as `compile` and `state pack` leave them."""
    folder = tmp_path / "build"
    for version, (policy, state) in enumerate(zip(packed.policies, packed.states, strict=False), start=1):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "policy.tar.gz").write_bytes(policy)
        (folder / str(version) / "state.tar.gz").write_bytes(state)
    return folder


def answered(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    assert run(["registry", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def document(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    found: Any = json.loads(answered(capsys, *arguments, "--format", "json"))
    return found


def test_put_and_run(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = answered(capsys, "put", url, files / "1", "--channel", "dev", "--why", "begin")
    assert "shop    policy" in text
    assert "dev/shop is at release 1" in text
    current = Registry.open(url).channel("dev", "shop")
    assert (current.why, current.policy is None, current.state is None) == ("begin", False, False)
    assert "begin" in answered(capsys, "status", "-r", url)
    listed = answered(capsys, "status", "-r", url, "--stored", "all")
    assert listed.count("dev") == 2
    assert "2 revisions" in listed
    assert answered(capsys, "status", "-r", url, "--stored", "state").count("shop") == 1


def test_release_and_roll_back(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("1", "2"):
        answered(capsys, "put", url, files / version, "--channel", "dev")
    first, second = Registry.open(url).history("dev", "shop")
    assert "release 3, policy" in answered(capsys, "rollback", "shop", "-r", url, "-c", "dev", "--to", "1")
    now = Registry.open(url).channel("dev", "shop")
    assert (now.policy, now.state, now.sequence) == (first.policy, first.state, 3)
    assert second.policy is not None
    answered(capsys, "put", url, f"shop@{second.policy[:6]}", "--channel", "dev", "--expect", "3")
    assert Registry.open(url).channel("dev", "shop").policy == second.policy
    assert "at release 4" in answered(
        capsys, "put", url, f"shop@{first.policy}", "--channel", "dev", "--expect", "3", code=1
    )
    [shown] = document(capsys, "status", "shop", "-r", url, "-c", "dev", "--history", "2")["channels"]
    assert [release["release"] for release in shown["history"]] == [3, 4]


def test_every_command_says_the_same_of_a_release(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put: Any = document(capsys, "put", url, files / "1", "--channel", "dev", "--why", "begin")
    [shown] = document(capsys, "status", "-r", url, "-c", "dev")["channels"]
    assert shown.pop("history") == [shown]
    assert shown == put["channel"]
    assert (shown["release"], shown["why"], shown["shards"], shown["trouble"]) == (1, "begin", None, None)


def test_several_channels_are_a_table_and_what_one_runs_is_chosen(
    url: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version, channel in (("1", "dev"), ("2", "prod")):
        answered(capsys, "put", url, files / version, "--channel", channel, "--why", f"for {channel}")
    lines = [line.split()[:3] for line in answered(capsys, "status", "-r", url).splitlines() if line]
    assert lines == [["channel", "system", "release"], ["dev", "shop", "1"], ["prod", "shop", "1"]]
    lines = [line.split() for line in answered(capsys, "status", "-r", url, "--history", "3").splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [("channel", "why"), ("dev", "dev"), ("prod", "prod")]
    whole = document(capsys, "status", "-r", url, "--stored", "all")
    assert {tuple(one["channels"]) for one in whole} == {("dev",), ("prod",)}
    chosen = document(capsys, "status", "shop", "-r", url, "-c", "prod", "--stored", "all")
    assert chosen == [one for one in whole if one["channels"] == ["prod"]]
    assert document(capsys, "status", "-r", url, "--stored", "all", "other") == []


def test_shards_run_together(
    url: str, tmp_path: Path, packed: ExampleBundles, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for at, bundle in enumerate(packed.shards.values()):
        (folder / f"{at}.tar.gz").write_bytes(bundle)
    (folder / "policy.tar.gz").write_bytes(packed.sharded)
    answered(capsys, "put", url, folder, "--channel", "dev")
    current = Registry.open(url).channel("dev", "shop")
    assert set(current.shards) == set(packed.shards)
    assert f"{len(packed.shards)} shards" in answered(capsys, "status", "-r", url, "-c", "dev")
    shard = next(key for key in packed.shards if key != "people")
    (tmp_path / "one.tar.gz").write_bytes(packed.shards[shard])
    answered(capsys, "put", url, tmp_path / "one.tar.gz", "--channel", "dev")
    assert Registry.open(url).channel("dev", "shop").shards == current.shards


def test_a_channel_without_a_name_is_refused_instead_of_not_released(
    url: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "the channel ``" in answered(capsys, "put", url, files / "1", "--channel", "", code=2)
    assert not list(Registry.open(url).revisions("shop", "policy"))


def test_a_canary_is_shown(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "put", url, files, code=0)
    registry = Registry.open(url)
    old, new = registry.revisions("shop")
    registry.release("dev", "shop", policy=old.id)
    registry.release("dev", "shop", canary=Canary(policy=new.id, share=0.1, labels={"zone": "a"}))
    assert f"{new.id[:10]} for 10% of zone=a" in answered(capsys, "status", "-r", url)


def test_a_sweep_says_first_and_removes_then(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("1", "2"):
        answered(capsys, "put", url, files / version, "--channel", "dev")
    arguments = ("check", url, "--keep", "1", "--older-than", "0")
    assert "2 revisions" in (dry := answered(capsys, *arguments))
    assert "would go" in dry
    assert "0 revisions" in answered(capsys, "check", url, "--keep", "1")
    assert "removed; 2 revisions stay" in answered(capsys, *arguments, "--remove")
    assert "4 revisions" not in answered(capsys, "status", "-r", url, "--stored", "all")
    assert "0 problems" in answered(capsys, "check", url)
    assert "keeps no policy revision" in answered(
        capsys, "rollback", "shop", "-r", url, "-c", "dev", "--to", "1", code=3
    )


def test_damage_is_found_and_copies_are_repaired(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "put", url, files / "1", "--channel", "dev")
    copy = Path(url) / "channels/dev/shop/policy.tar.gz"
    good = copy.read_bytes()
    copy.write_bytes(b"old")
    assert "policy.tar.gz: is not that of release 1" in answered(capsys, "check", url, code=1)
    answered(capsys, "check", url, "--repair")
    assert copy.read_bytes() == good
    (blob,) = [path for path in Path(url).rglob("*.tar.gz") if "blobs" in path.parts and path.read_bytes() == good]
    blob.write_bytes(good[:-1])
    assert "has been altered" in answered(capsys, "check", url, "--repair", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["put", "{url}", "{tmp}/none.tar.gz"], 3, "none.tar.gz"),
        (["put", "{url}", "{tmp}"], 3, "has no bundles"),
        (["status", "-r", "{url}", "-c", "dev"], 3, "there is no registry at"),
        (["status", "shop", "-r", "{url}", "-c", "dev", "--history", "3"], 3, "there is no registry at"),
        (["status", "shop", "-r", "{url}", "-c", "../dev"], 2, "the channel `../dev`"),
        (["status", "-r", "{url}", "--history", "3", "--stored", "all"], 2, "give no `--history`"),
        (["status", "--stored", "all", "--server", "http://127.0.0.1:1"], 2, "give `--registry URL`\n"),
        (["put", "{url}", "shop@12", "--channel", "dev"], 3, "keeps no revision `12` of shop"),
        (["put", "{url}", "shop@12", "--why", "as in dev"], 2, "give `--channel NAME`"),
        (["put", "{url}", "shop@12", "--expect", "3"], 2, "give `--channel NAME`"),
        (["status", "-r", "{url}", "-c", ""], 3, "there is no registry at"),
        (["check", "{url}", "--remove"], 2, "say with `--keep N`"),
        (["check", "{url}", "--keep", "1", "--repair"], 2, "give one of them"),
        (["status", "-r", "{url}", "--stored", "delta"], 2, "there is no kind `delta`"),
        (["status", "-r", "none://x/y"], 2, "none"),
        (["status", "-r", "s3://"], 2, "names no place"),
        (["status", "-r", "s3://bucket/x?key"], 2, "as KEY=VALUE, joined by `&`"),
        (["status", "-r", "s3://bucket/x?key=1&key=2"], 2, "`key` is given twice"),
    ],
)
def test_impossible_commands_are_reported(
    arguments: list[str], code: int, says: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").write_text("s3cret-t0ken")
    (tmp_path / "t").chmod(0o600)
    assert says in answered(capsys, *(argument.format(url=url, tmp=tmp_path) for argument in arguments), code=code)


def test_a_bundle_that_is_none_is_refused(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"none")
    assert "x.tar.gz is refused" in answered(capsys, "put", url, tmp_path / "x.tar.gz", code=1)
