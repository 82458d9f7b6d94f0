from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privtab.engines.opa import binary


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_policy_becomes_bundle_program_rego_and_schema(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    ran = privtab("compile", policy, "-o", tmp_path / "build")
    assert ran.code == 0, ran.err
    written = outputs(tmp_path / "build")
    assert {"shop/1/policy.tar.gz", "shop/1/program.json", "schema/policy.schema.json"} <= set(written)
    program = json.loads(written["shop/1/program.json"])
    assert program["system"] == "shop"
    with tarfile.open(fileobj=io.BytesIO(written["shop/1/policy.tar.gz"])) as bundle:
        inside = {name: bundle.extractfile(name).read() for name in bundle.getnames()}  # type: ignore[union-attr]
    readable = {path.removeprefix("shop/1/rego/"): text for path, text in written.items() if "/rego/" in path}
    assert readable == {name: text for name, text in inside.items() if name.endswith(".rego")}
    assert json.loads(inside[".manifest"])["revision"] == program["revision"]


def test_the_table_says_what_was_compiled(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    ran = privtab("compile", policy, "-o", tmp_path / "build", "--format", "json")
    (row,) = json.loads(ran.out)
    bundle = tmp_path / "build" / "shop" / "1" / "policy.tar.gz"
    assert (row["policy"], row["bundle"], row["bytes"]) == ("shop/1", str(bundle), bundle.stat().st_size)
    assert row["rules"] == row["rows"] + 4, "delete is a core row of each of the four types"
    text = privtab("compile", policy, "-o", tmp_path / "build").out
    assert row["revision"] in text
    assert f"{row['bytes']:,} B" in text


def test_compiling_again_gives_the_same_bytes(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    privtab("compile", policy, "-o", tmp_path / "one")
    privtab("compile", policy, "-o", tmp_path / "two")
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two")


def test_nothing_is_written_when_one_of_several_policies_is_wrong(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    good = policy.read_text(encoding="utf-8")
    (folder / "good.yaml").write_text(good, encoding="utf-8")
    (folder / "bad.yaml").write_text(
        good.replace("open: READ", "open: REED").replace("move: {", "move: {nonsense: 1, ")
    )
    (folder / "worse.yaml").write_text(good.replace("version: ", "versio: "), encoding="utf-8")
    ran = privtab("compile", folder, "-o", tmp_path / "build")
    assert ran.code == 1
    assert not (tmp_path / "build").exists()
    assert "bad.yaml" in ran.err
    assert "worse.yaml" in ran.err
    assert "REED" in ran.err


def test_outputs_of_an_earlier_run_survive_a_failure(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    privtab("compile", policy, "-o", build)
    before = outputs(build)
    policy.write_text(policy.read_text(encoding="utf-8").replace("open: READ", "open: REED"), encoding="utf-8")
    assert privtab("compile", policy, "-o", build).code == 1
    assert outputs(build) == before


def test_without_a_path_the_folder_of_policies_is_compiled_and_what_left_it_goes(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert privtab("compile").code == 2, "there is no policy_src/ yet"
    folder = tmp_path / "policy_src" / "shop"
    folder.mkdir(parents=True)
    text = policy.read_text(encoding="utf-8")
    (folder / "1.yaml").write_text(text, encoding="utf-8")
    (folder / "2.yaml").write_text(text.replace('version: "1"', 'version: "2"'), encoding="utf-8")
    (folder / "state.yaml").write_text("grants: []\n", encoding="utf-8")
    assert privtab("compile").code == 0
    assert (tmp_path / "build" / "shop" / "2" / "policy.tar.gz").exists()
    (tmp_path / "build" / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "2.yaml").unlink()
    assert privtab("compile").code == 0
    assert not (tmp_path / "build" / "shop" / "2").exists()
    assert (tmp_path / "build" / "shop" / "1" / "policy.tar.gz").exists()
    assert (tmp_path / "build" / "notes.txt").exists()


def test_the_state_bundle_survives_the_next_compilation(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    build = tmp_path / "build"
    assert privtab("compile", policy, "-o", build, "--state", state).code == 0
    bundle = build / "shop" / "1" / "state.tar.gz"
    assert bundle.exists()
    assert privtab("compile", policy, "-o", build).code == 0
    assert bundle.exists()


def test_wrong_state_rows_stop_everything(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    state.write_text(
        state.read_text(encoding="utf-8").replace("privilege: ALL", "privilege: EVERYTHING"), encoding="utf-8"
    )
    ran = privtab("compile", policy, "-o", tmp_path / "build", "--state", state)
    assert ran.code == 1
    assert "EVERYTHING" in ran.err
    assert not (tmp_path / "build").exists()
    assert privtab("compile", policy, "-o", tmp_path / "build", "--state", state, "--allow-partial").code == 0


def test_two_policies_of_one_name_are_refused(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin.yaml"
    twin.write_text(policy.read_text(encoding="utf-8"), encoding="utf-8")
    ran = privtab("compile", policy, twin, "-o", tmp_path / "build")
    assert ran.code == 2
    assert "`shop/1`" in ran.err
    assert not (tmp_path / "build").exists()


def test_another_name_gives_another_package(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    ran = privtab("compile", policy, "-o", tmp_path / "build", "--as", "shop_next")
    assert ran.code == 0, ran.err
    written = outputs(tmp_path / "build")
    assert "shop_next/1/policy.tar.gz" in written
    packages = [text for path, text in written.items() if path.endswith(".rego")]
    assert packages
    assert all(b"package privtab.shop_next" in text for text in packages)


@pytest.mark.parametrize("name", ["Shop", "shop-next", "../shop", ""])
def test_a_name_that_is_no_name_is_refused(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, name: str
) -> None:
    assert privtab("compile", policy, "-o", tmp_path / "build", "--as", name).code == 2
    assert not (tmp_path / "build").exists()


def test_options_of_one_policy_are_refused_for_several(privtab: Callable[..., Any], tmp_path: Path) -> None:
    for option in (["--as", "x"], ["--state", "x.yaml"]):
        ran = privtab("compile", "cdap/final", "cdap/revised", "-o", tmp_path / "build", *option)
        assert ran.code == 2, option


def test_each_policy_is_compiled_as_it_is_chosen(privtab: Callable[..., Any], tmp_path: Path) -> None:
    ran = privtab("compile", "cdap/final", "cdap/initial@use_cases", "-o", tmp_path / "build")
    assert ran.code == 0, ran.err
    assert {path.name for path in (tmp_path / "build" / "cdap").iterdir()} == {"final", "initial+use_cases"}
    twice = privtab("compile", "cdap/final@namespace/list=parent", "cdap/final", "-o", tmp_path / "twice")
    assert (twice.code, "would overwrite each other" in twice.err) == (2, True)


def test_the_readable_rego_passes_opa(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    privtab("compile", policy, "-o", tmp_path / "build")
    folder = tmp_path / "build" / "shop" / "1" / "rego"
    opa = str(binary.find())
    checked = subprocess.run([opa, "check", "--strict", str(folder)], check=False, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    formatted = subprocess.run([opa, "fmt", "--list", str(folder)], check=True, capture_output=True, timeout=60)
    assert formatted.stdout == b""


def test_wasm_comes_in_a_bundle_of_its_own(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        ran = privtab("compile", policy, "--also", "wasm", "-o", tmp_path / folder)
        assert ran.code == 0, ran.err
    written = outputs(tmp_path / "one")
    assert written == outputs(tmp_path / "two")
    with tarfile.open(fileobj=io.BytesIO(written["shop/1/policy.wasm.tar.gz"])) as bundle:
        inside = {name: bundle.extractfile(name).read() for name in bundle.getnames()}  # type: ignore[union-attr]
    assert set(inside) == {".manifest", "policy.wasm", "privtab_program/shop/data.json"}
    assert inside["policy.wasm"].startswith(b"\0asm")
    manifest = json.loads(inside[".manifest"])
    assert {"entrypoint": "privtab/shop/allow", "module": "policy.wasm"} in manifest["wasm"]
    assert manifest["revision"] == json.loads(written["shop/1/program.json"])["revision"]


def test_wasm_without_opa_writes_nothing(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVTAB_OPA", str(tmp_path / "none"))
    ran = privtab("compile", policy, "--also", "wasm", "-o", tmp_path / "build")
    assert ran.code == 3
    assert "OPA" in ran.err
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("severity", ["warning", "error"])
def test_child_processes_check_and_compile_the_same(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, severity: str
) -> None:
    settings = f"[lint.severity]\nP305 = '{severity}'\n"
    policy.with_name("privtab.toml").write_text(settings, encoding="utf-8")
    monkeypatch.setattr("privtab.base.worker.Worker.spare", lambda: 0)
    alone = privtab("compile", policy, "-o", tmp_path / "alone")
    for module in ("pipeline", "bundle.pack", "command.compile"):
        monkeypatch.setattr(f"privtab.{module}.LARGE", 1)
    monkeypatch.setattr("privtab.base.worker.Worker.spare", lambda: 1)
    beside = privtab("compile", policy, "-o", tmp_path / "beside")
    assert (beside.code, beside.err) == (alone.code, alone.err)
    assert alone.code == (severity == "error")
    assert outputs(tmp_path / "beside") == outputs(tmp_path / "alone")
    assert (tmp_path / "alone").exists() == (severity == "warning")
