"""The Helm chart: it deploys what opa/kubernetes deploys, as valid objects, and refuses values that make no sense."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from checkout import ROOT
from command_lines import problems

from privtab import __version__
from privtab.engines.opa import binary

CHART = ROOT / "deploy" / "helm" / "privtab"
PLAIN = [
    document
    for file in sorted((ROOT / "opa" / "kubernetes").glob("*.yaml"))
    if file.name != "kustomization.yaml"
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
HELM = shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed")


def plain(kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in PLAIN if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return dict(found)


KEYS = plain("ConfigMap", "privtab-verification-keys")["data"]
SERVICE: dict[str, Any] = {
    "service": {"enabled": True, "name": "reporting", "image": "registry.example.com/reporting:1.0.0"},
    "sidecar": {
        "system": "gravitino",
        "policyKey": {"id": "policy-2026", "pem": KEYS["policy-2026.pub.pem"]},
        "stateKey": {"id": "state-2026", "pem": KEYS["state-2026.pub.pem"]},
    },
}


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return values | {k: merged(values[k], v) if isinstance(v, dict) and k in values else v for k, v in more.items()}


def test_the_chart_is_of_this_version_and_its_images_are_pinned() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__
    assert VALUES["opaImage"]["tag"] == f"{binary.PINNED}-static"


def test_values_are_checked() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    jsonschema.validate(merged(VALUES, SERVICE), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"service": {"enabled": True}},
        merged(SERVICE, {"sidecar": {"policyKey": {"pem": "no key"}}}),
        merged(SERVICE, {"sidecar": {"registryUrl": "http://registry:8080"}}),
        {"registry": {"replicas": 2}},
        {"registry": {"replica": 1}},
        {"registry": {"resources": {"limits": {"memory": None}}}},
        {"opaImage": {"tag": "latest"}},
        {"image": {"digest": "sha256:12"}},
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, wrong), SCHEMA)


def rendered(tmp_path: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [str(HELM), "template", "privtab", str(CHART), "--namespace", "privtab", "--values", str(file)]
    command += ["--kube-version", kubernetes_validate.latest_version()]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return [document for document in yaml.safe_load_all(ran.stdout) if document]


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
@pytest.mark.parametrize(
    "values",
    [{}, SERVICE, {"registry": {"location": "s3://policies/registry", "replicas": 3}}],
    ids=["registry", "service", "s3"],
)
def test_kubernetes_would_take_what_is_rendered(tmp_path: Path, values: dict[str, Any], version: str) -> None:
    documents = rendered(tmp_path, values)
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize("name", ["privtab-registry", "reporting"])
def test_pods_are_those_of_the_plain_manifests(tmp_path: Path, name: str) -> None:
    documents = {(d["kind"], d["metadata"]["name"]): d for d in rendered(tmp_path, SERVICE)}
    made = documents["Deployment", name]["spec"]
    expected = plain("Deployment", name)["spec"]
    assert made["template"] == expected["template"]
    assert (made["replicas"], made["strategy"]) == (expected["replicas"], expected["strategy"])
    for container in made["template"]["spec"]["containers"]:
        if name == "privtab-registry":
            assert problems(container["args"]) == []


@pytest.mark.slow
@needs_helm
def test_the_configuration_and_the_rules_of_the_network_are_those_of_the_plain_manifests(tmp_path: Path) -> None:
    documents = {(d["kind"], d["metadata"]["name"]): d for d in rendered(tmp_path, SERVICE)}
    for name in ("privtab-sidecar", "privtab-verification-keys"):
        made, expected = (d["data"] for d in (documents["ConfigMap", name], plain("ConfigMap", name)))
        assert {k: yaml.safe_load(v) for k, v in made.items()} == {k: yaml.safe_load(v) for k, v in expected.items()}
    assert documents["NetworkPolicy", "privtab-registry"]["spec"] == plain("NetworkPolicy", "registry")["spec"]
    made, expected = (d["spec"] for d in (documents["NetworkPolicy", "reporting"], plain("NetworkPolicy", "reporting")))
    assert made["podSelector"] == expected["podSelector"]
    assert sorted(made["ingress"], key=str) == sorted(expected["ingress"], key=str)
