"""opa/kubernetes: valid for Kubernetes, whole, careful, and tried: its commands and its OPA configuration run here."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import requests
import signing_keys
import yaml
from checkout import ROOT
from failing_servers import Authority, free_port, opa_process

from privtab.command._app import run

FOLDER = ROOT / "opa" / "kubernetes"
OLDEST = "1.29"
"""Of Kubernetes: the first with sidecars that are started before the others."""
OPERATOR, SIDECAR = "operator-token-0123456789", "sidecar-token-0123456789"
STATE = """
service_admins: []
grants:
  - {{grantee: "user:{0}", effect: allow, privilege: USE_CATALOG, entity: "catalog:m/c"}}
members:
  - {{user: {0}, of: "metalake:m"}}
"""
SECONDS = 30


def documents() -> list[dict[str, Any]]:
    files = [file for file in sorted(FOLDER.glob("*.yaml")) if file.name != "kustomization.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


DOCUMENTS = documents()
IDS = [f"{d['kind']}-{d['metadata']['name']}" for d in DOCUMENTS]


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in DOCUMENTS if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pod templates, by name."""
    found = {d["metadata"]["name"]: d["spec"]["template"] for d in DOCUMENTS if d["kind"] == "Deployment"}
    jobs = [d for d in DOCUMENTS if d["kind"] == "CronJob"]
    return found | {d["metadata"]["name"]: d["spec"]["jobTemplate"]["spec"]["template"] for d in jobs}


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


EVERY = [(name, container) for name, template in pods().items() for container in containers(template)]
EVERY_IDS = [f"{name}-{container['name']}" for name, container in EVERY]


def container(pod: str, name: str) -> dict[str, Any]:
    (found,) = [c for c in containers(pods()[pod]) if c["name"] == name]
    return found


# --- as they stand ---


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_kubernetes_would_take_it(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_check_finds_what_is_wrong() -> None:
    for path, value in (("replicaz", 2), ("replicas", "two")):
        wrong = json.loads(json.dumps(named("Deployment", "reporting")))
        wrong["spec"][path] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_kustomize_applies_all_but_the_examples_of_secrets() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {file.name for file in FOLDER.glob("*.yaml")}
    assert set(listed["resources"]) == files - {"kustomization.yaml", "secrets.example.yaml"}
    assert all(d["metadata"].get("namespace") == listed["namespace"] for d in DOCUMENTS if d["kind"] != "Namespace")


@pytest.mark.parametrize(("pod", "container"), EVERY, ids=EVERY_IDS)
def test_containers_get_what_they_need_and_no_more(pod: str, container: dict[str, Any]) -> None:
    spec = pods()[pod]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    image, _, tag = container["image"].rpartition(":")
    assert image
    assert tag not in ("", "latest")
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
    assert {mount["name"] for mount in mounts.values()} <= volumes
    for path in paths(container):
        assert "/" + path.split("/")[1] in mounts, f"{path} is on no volume"


def test_named_documents_exist() -> None:
    by_kind_and_name = {(d["kind"], d["metadata"]["name"]): d for d in DOCUMENTS}
    for name, template in pods().items():
        for volume in template["spec"].get("volumes", []):
            match volume:
                case {"configMap": {"name": str(source)}}:
                    assert ("ConfigMap", source) in by_kind_and_name
                case {"secret": {"secretName": str(source)}}:
                    secret = by_kind_and_name["Secret", source]
                    assert {item["key"] for item in volume["secret"].get("items", [])} <= secret["stringData"].keys()
                case {"persistentVolumeClaim": {"claimName": str(source)}}:
                    assert ("PersistentVolumeClaim", source) in by_kind_and_name
                case _:
                    assert "emptyDir" in volume, name
    labels = {name: template["metadata"]["labels"] for name, template in pods().items()}
    selectors = [d["spec"]["selector"] for d in DOCUMENTS if d["kind"] == "Service"]
    selectors += [
        d["spec"]["selector"]["matchLabels"] for d in DOCUMENTS if d["kind"] in ("Deployment", "PodDisruptionBudget")
    ]
    selectors += [d["spec"]["podSelector"].get("matchLabels", {}) for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
    for selector in selectors:
        assert any(selector.items() <= own.items() for own in labels.values()), selector


def test_probed_ports_are_open() -> None:
    for name, template in pods().items():
        for container_spec in containers(template):
            ports = {port["name"]: port["containerPort"] for port in container_spec.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                settings = container_spec.get(probe, {})
                where = settings.get("httpGet", settings.get("tcpSocket"))
                assert where is None or where["port"] in ports, f"{name}: {probe}"
    registry = container("privtab-registry", "registry")
    service = named("Service", "privtab-registry")["spec"]["ports"][0]
    assert f"--listen=0.0.0.0:{service['port']}" in registry["args"]
    opa = container("reporting", "opa")
    env = {variable["name"]: variable.get("value") for variable in opa["env"]}
    assert env["PRIVTAB_REGISTRY_URL"] == f"https://privtab-registry.privtab.svc:{service['port']}"
    assert "--addr=127.0.0.1:8181" in opa["args"], "nobody outside of the pod reaches OPA"


def test_the_version_of_opa_is_the_pinned_one() -> None:
    from privtab.engines.opa import binary

    assert container("reporting", "opa")["image"] == f"openpolicyagent/opa:{binary.PINNED}-static"


def test_the_kustomization_names_every_image_once_by_its_tag_or_digest() -> None:
    import re

    listed = {image["name"]: image for image in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]}
    used = {container["image"].rpartition(":")[0]: container["image"].rpartition(":")[2] for _, container in EVERY}
    assert listed.keys() == used.keys()
    for name, listed_image in listed.items():
        if "digest" in listed_image:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", listed_image["digest"]), name
            assert len(set(listed_image["digest"])) > 16, f"{name}: that is no digest"
            assert "newTag" not in listed_image
        else:
            assert listed_image["newTag"] == used[name], (
                f"{name}: the manifests and the kustomization name two versions"
            )


def test_variables_of_the_configuration_are_set() -> None:
    import re

    text = named("ConfigMap", "privtab-sidecar")["data"]["config.yaml"]
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= {
        variable["name"] for variable in container("reporting", "opa")["env"]
    }
    config = yaml.safe_load(text)
    for name, bundle in config["bundles"].items():
        assert bundle["signing"]["keyid"] in config["keys"], name
        assert bundle["signing"]["scope"]


# --- as they run ---


def paths(container: dict[str, Any]) -> list[str]:
    """The absolute paths among arguments."""
    words = [word.rpartition("=")[2] for word in container.get("args", [])]
    return [word for word in words if word.startswith("/")]


class Cluster:
    """The folders that the containers mount, below a folder of the test; their arguments, with these in place of those."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.port = free_port()
        for name in ("registry", "tokens", "tls", "config", "keys", "secrets", "bundles", "state", "packed"):
            (folder / name).mkdir()
        certificate, key = self.authority.sign("registry")
        shutil.copy(certificate, folder / "tls" / "tls.crt")
        shutil.copy(key, folder / "tls" / "tls.key")
        shutil.copy(self.authority.certificate, folder / "tls" / "ca.crt")
        (folder / "tokens" / "tokens").write_text(f"sidecars {SIDECAR} sidecar\noperators {OPERATOR} operator\n")
        (folder / "secrets" / "token").write_text(SIDECAR)
        for number, name in enumerate(("policy-2026", "state-2026")):
            signing_keys.pair("ES256", number).write(folder / "keys", name)
        config = named("ConfigMap", "privtab-sidecar")["data"]["config.yaml"]
        for name in ("/secrets/token", "/tls/ca.crt", "/bundles"):
            assert name in config
            config = config.replace(f" {name}", f" {folder}{name}")
        (folder / "config" / "config.yaml").write_text(config)

    def arguments(self, pod: str, name: str, **changed: str) -> list[str]:
        """Of a container; `changed`: other values of options."""
        found = []
        for word in container(pod, name)["args"]:
            option, equals, value = word.rpartition("=")
            key = option.removeprefix("--").replace("-", "_")
            value = changed.get(key, f"{self.folder}{value}" if value.startswith("/") else value)
            found.append(f"{option}{equals}{value}".replace("registry:/registry", f"registry:{self.folder}/registry"))
        return found

    def put_policy(self) -> None:
        out = self.folder / "compiled"
        key = self.folder / "keys" / "policy-2026.pem"
        compiled = [
            "compile",
            "gravitino/1.1.0",
            "-o",
            str(out),
            "--signing-key",
            str(key),
            "--signature",
            "scope=prod",
        ]
        assert run(compiled) == 0
        put = ["registry", "put", str(self.folder / "registry"), str(out / "gravitino" / "1.1.0" / "policy.tar.gz")]
        assert run([*put, "--channel", "prod"]) == 0

    def run_job(self, user: str) -> None:
        """What the CronJob does after the export."""
        (self.folder / "state" / "state.yaml").write_text(STATE.format(user))
        arguments = self.arguments("privtab-state", "pack")
        arguments[2] += "/state.yaml"
        assert run(arguments) == 0
        assert run(self.arguments("privtab-state", "release")) == 0

    @contextlib.contextmanager
    def registry(self) -> Iterator[None]:
        command = [
            sys.executable,
            "-m",
            "privtab",
            *self.arguments("privtab-registry", "registry", listen=f"127.0.0.1:{self.port}"),
        ]
        with (self.folder / "registry.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until(lambda: self.get("/health") is not None, "the registry answers")
            yield
        finally:
            process.terminate()
            process.wait(20)

    @contextlib.contextmanager
    def opa(self, binary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """The sidecar; gives where it listens."""
        env = {
            variable["name"]: variable.get("value", "reporting-7d4f-x2x")
            for variable in container("reporting", "opa")["env"]
        }
        env["PRIVTAB_REGISTRY_URL"] = f"https://127.0.0.1:{self.port}"
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        port = free_port()
        diagnostics = free_port()
        arguments = self.arguments(
            "reporting", "opa", addr=f"127.0.0.1:{port}", diagnostic_addr=f"127.0.0.1:{diagnostics}"
        )
        arguments = [
            word.replace("key=", f"key={self.folder}")
            if word.startswith("--set-file") and f"{self.folder}" not in word
            else word
            for word in arguments
        ]
        probe = container("reporting", "opa")["startupProbe"]["httpGet"]["path"]
        with opa_process(binary, self.folder / "opa.log", *arguments[2:]):

            def ready() -> bool:
                with contextlib.suppress(requests.RequestException):
                    return requests.get(f"http://127.0.0.1:{diagnostics}{probe}", timeout=2).status_code == 200
                return False

            until(ready, (self.folder / "opa.log").read_text)
            yield f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(
                f"https://127.0.0.1:{self.port}{path}",
                headers={"Authorization": f"Bearer {OPERATOR}"},
                verify=str(self.authority.certificate),
                timeout=5,
            )
            return answer.text if path == "/health" else answer.json()
        return None


def until(holds: Callable[[], bool], what: str | Callable[[], str]) -> None:
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, what if isinstance(what, str) else what()
        time.sleep(0.05)


def allowed(opa: str, user: str) -> bool | None:
    request = {
        "subject": {"type": "user", "id": user},
        "action": {"name": "load"},
        "resource": {"type": "catalog", "id": "m/c"},
    }
    answer = requests.post(f"{opa}/v1/data/privtab/gravitino/allow", json={"input": request}, timeout=5).json()
    found: bool | None = answer.get("result")
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_the_sidecar_runs_as_configured(opa_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)
    cluster.put_policy()
    cluster.run_job("ann")
    with cluster.registry(), cluster.opa(opa_binary, monkeypatch) as opa:
        assert (allowed(opa, "ann"), allowed(opa, "ben")) == (True, False)

        def fleet() -> dict[str, Any]:
            found = [sidecar for sidecar in (cluster.get("/fleet") or {}).get("sidecars", []) if sidecar.get("labels")]
            return found[0] if found else {}

        until(lambda: "state" in json.dumps(fleet()), "the sidecar reports")
        assert "reporting-7d4f-x2x" in json.dumps(fleet())
        assert fleet()["labels"]["app"] == "reporting"
        cluster.run_job("ben")
        until(lambda: allowed(opa, "ben") is True, "the job's state is active")
        # A state with the key of policies: it is kept, since this registry asks for nothing, but no sidecar takes it.
        shutil.copy(tmp_path / "keys" / "policy-2026.pem", tmp_path / "keys" / "state-2026.pem")
        cluster.run_job("mallory")
        until(lambda: "failed to verify" in json.dumps(fleet()), lambda: json.dumps(fleet()))
        assert (allowed(opa, "ben"), allowed(opa, "mallory")) == (True, False)
    with cluster.opa(opa_binary, monkeypatch) as opa:
        assert allowed(opa, "ben") is True, "started without the registry, by what it had kept"
