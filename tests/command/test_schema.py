from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from privtab.base import resources


class Yaml12(yaml.SafeLoader):
    """YAML as policies mean it: `on`, `yes` and dates are text."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":int", ":null"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), ["t", "f"])


def shipped(pattern: str = "*.yaml") -> dict[str, Any]:
    found = {}
    for path in sorted(resources.policies().rglob(pattern)):
        value = yaml.load(path.read_text(encoding="utf-8"), Yaml12)  # noqa: S506  it is a safe loader with fewer types
        if "privtab" in value:
            found[path.stem] = value
    return found


@pytest.mark.slow
def test_the_schema_is_a_schema_and_takes_every_shipped_policy(privtab: Callable[..., Any]) -> None:
    schema = json.loads(privtab("schema").out)
    Draft202012Validator.check_schema(schema)
    policies = shipped()
    assert {"final", "1.1.0", "1.2.0", "1.3.0", "1.7", "teracloud"} <= set(policies)
    for name, policy in policies.items():
        problems = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(policy)]
        assert problems == [], name


def test_the_schema_finds_a_misspelt_key(privtab: Callable[..., Any]) -> None:
    schema = json.loads(privtab("schema").out)
    policy = shipped("final.yaml")["final"]
    policy["tabels"] = policy.pop("tables")
    assert list(Draft202012Validator(schema).iter_errors(policy))


def test_the_schema_is_written_to_a_file(privtab: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "policy.schema.json"
    assert privtab("schema", "-o", path).code == 0
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(privtab("schema").out)
