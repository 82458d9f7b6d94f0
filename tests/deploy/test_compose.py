"""docker-compose.yml: by the Compose Specification's schema (`compose-spec.json` beside this file), and by what we promise."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from privtab.opa import binary
from privtab.opa.server import OpaServer

ROOT = Path(__file__).resolve().parents[2]
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
    images = {name: service["image"] for name, service in compose["services"].items()}
    assert all(re.fullmatch(r"[\w/.-]+:\d+\.\d+\.\d+(-[a-z]+)?", image) for image in images.values())
    assert images["opa"] == f"openpolicyagent/opa:{binary.PINNED}-static"


def test_ports_are_bound_to_the_loopback_address_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service["ports"]]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_containers_cannot_write(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert all(volume["read_only"] is True for volume in service["volumes"])


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service["volumes"]:
            assert (ROOT / volume["source"]).exists(), volume["source"]


def test_every_variable_of_the_opa_configuration_is_set(compose: dict[str, Any]) -> None:
    config = (ROOT / "opa" / "config.yaml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", config))
    assert used == set(compose["services"]["opa"]["environment"])


def test_every_service_has_a_health_check_and_opa_waits_for_the_bundles(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert all(service["healthcheck"]["test"][0] == "CMD" for service in services.values())
    assert services["opa"]["depends_on"]["bundles"]["condition"] == "service_healthy"


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
