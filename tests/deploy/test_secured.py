"""opa/docker-compose.secured.yml: its command run with a real OPA, files where it looks for them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from failing_servers import Authority, free_port, wait_for
from jsonschema import Draft202012Validator

from privtab import Client, PolicyError
from privtab.command._app import run

TOKEN = "a-token-of-this-test"  # noqa: S105  (of a test)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class calls it so
        pass


@pytest.fixture(scope="module")
def overlay() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "opa" / "docker-compose.secured.yml").read_text(encoding="utf-8"))
    return loaded


def test_the_file_follows_the_compose_specification(overlay: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "tests" / "deploy" / "compose-spec.json").read_text(encoding="utf-8"))
    assert [error.message for error in Draft202012Validator(schema).iter_errors(overlay)] == []


def test_every_file_that_the_command_names_is_mounted_for_reading(overlay: dict[str, Any]) -> None:
    opa = overlay["services"]["opa"]
    assert all(volume["read_only"] is True for volume in opa["volumes"])
    sources = [volume["source"] for volume in opa["volumes"] if not volume["source"].startswith("${")]
    assert all((ROOT / source).is_file() for source in sources)
    base = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["opa"]
    mounted = {volume["target"] for volume in [*base["volumes"], *opa["volumes"]]}
    named = [word.rpartition("=")[2] for word in opa["command"] if "/config/" in word or "/secrets/" in word]
    assert {name if name.startswith("/config") else "/secrets" for name in named} == mounted
    assert set(base["command"]) <= set(opa["command"]), "it takes nothing of the base's command away"


def test_the_command_opens_to_the_token_and_logs_what_it_may(
    overlay: dict[str, Any], tmp_path: Path, opa_binary: Path
) -> None:
    state = tmp_path / "state.yaml"
    state.write_text(
        'grants: [{grantee: "user:alice", effect: allow, privilege: READ, entity: "dataset:i/n/d"}]\n', encoding="utf-8"
    )
    policy = str(ROOT / "policy_src" / "cdap" / "final.yaml")
    assert run(["compile", policy, "-o", str(tmp_path / "build"), "--state", str(state)]) == 0
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("opa")
    access = {"tokens": {hashlib.sha256(TOKEN.encode()).hexdigest(): ["ask"]}}
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    certificate.rename(secrets / "opa.pem")
    key.rename(secrets / "opa.key")
    (secrets / "access.json").write_text(json.dumps({"privtab_access": access}), encoding="utf-8")
    (secrets / "log.json").write_text(json.dumps({"privtab_log": {"users": "remove"}}), encoding="utf-8")

    places = {
        "/config/config.yaml": ROOT / "opa" / "config.yaml",
        "/config/authz.rego": ROOT / "opa/system/authz/authz.rego",
    }
    places |= {"/config/mask.rego": ROOT / "opa/system/log/mask.rego", "/secrets": secrets}
    port = free_port()
    command = [str(word) for word in overlay["services"]["opa"]["command"]]
    for inside, outside in places.items():
        command = [word.replace(inside, str(outside)) for word in command]
    command = [word.replace("0.0.0.0:8181", f"127.0.0.1:{port}") for word in command]

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "build")))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    variables = {
        "PRIVTAB_BUNDLES_URL": f"http://127.0.0.1:{server.server_port}",
        "PRIVTAB_POLICY": "cdap/final",
        "PRIVTAB_POLL_SECONDS": "1",
    }
    log = tmp_path / "opa.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [str(opa_binary), *command], env={**os.environ, **variables}, stdout=written, stderr=written
        )
    try:
        url, trusted = f"https://127.0.0.1:{port}", str(authority.certificate)
        action_and_entity = ("get", "dataset:i/n/d")
        with Client(url, token=TOKEN, verify=trusted) as client:
            wait_for(client.health)
            assert client.check("alice", *action_and_entity, groups=["a-marked-group"])
            assert not client.check("bob", *action_and_entity)
        with Client(url, system="cdap", verify=trusted) as client, pytest.raises(PolicyError, match="401"):
            client.check("alice", *action_and_entity)
        healthcheck = overlay["services"]["opa"]["healthcheck"]["test"][2:]
        healthcheck = [word.replace("127.0.0.1:8181", f"127.0.0.1:{port}") for word in healthcheck]
        assert (
            subprocess.run([str(opa_binary), *healthcheck], check=False, capture_output=True, timeout=20).returncode
            == 0
        )
        healthcheck[-1] = healthcheck[-1].replace("/health", "/v1/status")
        assert (
            subprocess.run([str(opa_binary), *healthcheck], check=False, capture_output=True, timeout=20).returncode
            == 1
        )
        wait_for(lambda: '"path":"privtab/cdap/check"' in log.read_text(encoding="utf-8"))
    finally:
        process.terminate()
        process.wait(10)
        server.shutdown()
        server.server_close()
    text = log.read_text(encoding="utf-8")
    assert "alice" not in text
    assert "a-marked-group" not in text
    assert "dataset" in text
