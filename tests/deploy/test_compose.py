"""docker-compose.yml: by the Compose Specification's schema (`compose-spec.json` beside this file), and by what we promise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from failing_servers import free_port, wait_for
from jsonschema import Draft202012Validator

from privtab import Client, __version__
from privtab.engines.opa import binary
from privtab.engines.opa.server import OpaServer

SCHEMA = Path(__file__).with_name("compose-spec.json")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def violations(compose: dict[str, Any]) -> list[str]:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(compose)]


def test_the_file_follows_the_compose_specification(compose: dict[str, Any]) -> None:
    assert violations(compose) == []


def test_the_schema_finds_a_misspelt_key(compose: dict[str, Any]) -> None:
    compose = json.loads(json.dumps(compose))
    compose["services"]["opa"]["helthcheck"] = compose["services"]["opa"].pop("healthcheck")
    assert violations(compose) != []


def test_images_are_pinned_and_opa_is_the_pinned_version(compose: dict[str, Any]) -> None:
    images = {name: usual(service["image"]) for name, service in compose["services"].items()}
    assert all(re.fullmatch(r"[\w/.-]+:\d+\.\d+\.\d+(-[a-z]+)?", image) for image in images.values())
    assert images["opa"] == f"openpolicyagent/opa:{binary.PINNED}-static"
    assert {image for name, image in images.items() if name != "opa"} == {f"privtab/privtab:{__version__}"}
    build = compose["services"]["registry"]["build"]
    assert re.search(r"^ARG PYTHON_IMAGE\nFROM \$\$PYTHON_IMAGE$", build["dockerfile_inline"], re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", usual(build["args"]["PYTHON_IMAGE"]))


def usual(text: str) -> str:
    """A value where the environment names no other, as with the digest of an image."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_the_files_and_packages_of_the_image_exist(compose: dict[str, Any]) -> None:
    text = compose["services"]["registry"]["build"]["dockerfile_inline"]
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    target = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*target["force-include"], *(package.split("/")[0] for package in target["packages"])} <= set(copied)
    assert {"pyproject.toml", "requirements/run.lock"} <= set(copied)


def test_ports_are_bound_to_the_loopback_address_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_containers_cannot_write_but_who_deploys(compose: dict[str, Any]) -> None:
    writable = {}
    for name, service in compose["services"].items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        writable[name] = [v["target"] for v in service["volumes"] if not v.get("read_only")]
    assert writable == {"registry": [], "deploy": ["/registry"], "opa": [], "job": []}


def test_mounted_files_and_volumes_exist(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service["volumes"]:
            declared = volume["source"] in compose["volumes"]
            assert declared if volume["type"] == "volume" else (ROOT / volume["source"]).exists(), volume["source"]


def test_every_variable_of_the_opa_configuration_is_set(compose: dict[str, Any]) -> None:
    config = (ROOT / "opa" / "config-registry.yaml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", config))
    assert used == set(compose["services"]["opa"]["environment"])


def test_parts_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert all(services[name]["healthcheck"]["test"][0] == "CMD" for name in ("registry", "opa"))
    waits = {
        name: {of: how["condition"] for of, how in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }
    assert waits == {
        "registry": {},
        "deploy": {"registry": "service_healthy"},
        "opa": {"registry": "service_healthy", "deploy": "service_completed_successfully"},
        "job": {"opa": "service_healthy"},
    }


def plain(word: str) -> str:
    """A word of the file with no variable set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word)


@pytest.mark.slow
def test_the_commands_of_the_compose_file_start_a_sidecar_that_decides(compose: dict[str, Any], tmp_path: Path) -> None:
    """What the containers run, run here: other places for volumes and addresses, and nothing else."""
    ports = {"registry:8080": free_port(), "0.0.0.0:8181": free_port()}

    def on_this_machine(word: str) -> str:
        for before, after in (
            ("/registry", str(tmp_path / "registry"))
            if re.sub("^(--registry=|registry:)", "", word) == "/registry"
            else ("", ""),
            ("http://registry:8080", f"http://127.0.0.1:{ports['registry:8080']}"),
            ("--listen=0.0.0.0:8080", f"--listen=127.0.0.1:{ports['registry:8080']}"),
            ("0.0.0.0:8181", f"127.0.0.1:{ports['0.0.0.0:8181']}"),
            ("/config/config.yaml", str(ROOT / "opa" / "config-registry.yaml")),
        ):
            word = word.replace(before, after) if before else word
        return word

    def command(name: str) -> list[str]:
        words = [on_this_machine(plain(str(word))) for word in compose["services"][name]["command"]]
        return [str(binary.find()), *words] if name == "opa" else [sys.executable, "-m", *words]

    variables = {name: on_this_machine(plain(str(v))) for name, v in compose["services"]["opa"]["environment"].items()}
    running: list[subprocess.Popen[bytes]] = []
    with (tmp_path / "log").open("wb") as log:
        try:
            running.append(subprocess.Popen(command("registry"), stdout=log, stderr=log))
            done = subprocess.run(command("deploy"), cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            running.append(subprocess.Popen(command("opa"), env={**os.environ, **variables}, stdout=log, stderr=log))
            with Client(f"http://127.0.0.1:{ports['0.0.0.0:8181']}", system="gravitino") as client:
                wait_for(client.health, 40)
                assert client.check("alice", "load", "table:demo/hive/sales/orders")
                assert not client.check("bob", "load", "table:demo/hive/sales/orders")
        finally:
            for process in running:
                process.kill()
                process.wait(10)


def health_check(compose: dict[str, Any], url: str) -> int:
    """The exit code of OPA's own health check, run with the OPA of this machine against another address."""
    command = compose["services"]["opa"]["healthcheck"]["test"]
    assert command[:2] == ["CMD", "/opa"]
    arguments = [part.replace("http://127.0.0.1:8181", url) for part in command[2:]]
    assert any(url in part for part in arguments)
    return subprocess.run([str(binary.find()), *arguments], check=False, capture_output=True, timeout=30).returncode


def test_the_health_check_passes_for_a_ready_opa_and_fails_when_it_is_gone(compose: dict[str, Any]) -> None:
    with OpaServer() as opa:
        url = opa.url
        assert health_check(compose, url) == 0
    assert health_check(compose, url) == 1


def test_the_health_check_fails_while_a_bundle_is_not_active(compose: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "services: {nowhere: {url: 'http://127.0.0.1:9'}}\n"
        "bundles: {policy: {service: nowhere, resource: /policy.tar.gz}}\n",
        encoding="utf-8",
    )
    with OpaServer() as free:
        address = free.url.removeprefix("http://")
    command = [str(binary.find()), "run", "--server", "--skip-version-check", "--addr", address, "-c", str(config)]
    opa = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        plain = {"services": {"opa": {"healthcheck": {"test": [*compose["services"]["opa"]["healthcheck"]["test"]]}}}}
        test = plain["services"]["opa"]["healthcheck"]["test"]
        plain["services"]["opa"]["healthcheck"]["test"] = [part.replace("?bundles=true", "") for part in test]
        deadline = time.monotonic() + 20
        while health_check(plain, f"http://{address}") != 0:
            assert time.monotonic() < deadline, "OPA does not answer at all"
            time.sleep(0.1)
        assert health_check(compose, f"http://{address}") == 1
    finally:
        opa.terminate()
        opa.wait(10)
