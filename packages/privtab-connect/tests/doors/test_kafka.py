"""A third system from documents alone: the requests that the OPA plugin for Apache Kafka documents and tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from checkout import ROOT
from signed_door import DoorServer, door_server

EXAMPLE = ROOT / "examples" / "kafka"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    folder = tmp_path_factory.mktemp("kafka")
    with door_server(folder, EXAMPLE / "policy.yaml", EXAMPLE / "kafka.yaml", EXAMPLE / "state.yaml") as server:
        yield server


def request(user: str, operation: str, name: str, type_: str = "TOPIC", **more: Any) -> dict[str, Any]:
    """A request as the plugin sends it."""
    pattern = {
        "name": name,
        "patternType": "LITERAL",
        "resourceType": type_,
        "unknown": False,
        **more.pop("pattern", {}),
    }
    return {
        "action": {
            "logIfAllowed": True,
            "logIfDenied": True,
            "operation": operation,
            "resourcePattern": pattern,
            "resourceReferenceCount": 1,
        },
        "requestContext": {
            "clientAddress": "192.168.64.1",
            "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"},
            "connectionId": "192.168.64.4:9092-192.168.64.1:58864-0",
            "header": {"data": {"clientId": "rdkafka", "correlationId": 5, "requestApiKey": 1, "requestApiVersion": 4}},
            "listenerName": "SASL_PLAINTEXT",
            "principal": {"name": user, "principalType": "User", "tokenAuthenticated": False, **more},
            "securityProtocol": "SASL_PLAINTEXT",
        },
    }


@pytest.mark.parametrize(
    ("user", "operation", "name", "type_", "allowed"),
    [
        ("alice-producer", "WRITE", "alice-topic", "TOPIC", True),
        ("alice-producer", "DESCRIBE", "alice-topic", "TOPIC", True),
        ("alice-producer", "READ", "alice-topic", "TOPIC", False),
        ("alice-producer", "WRITE", "bob-topic", "TOPIC", False),
        ("alice-consumer", "READ", "alice-topic", "TOPIC", True),
        ("alice-consumer", "READ", "alice-group", "GROUP", True),
        ("alice-consumer", "READ", "alice-topic", "GROUP", False),
        ("alice-consumer", "WRITE", "alice-topic", "TOPIC", False),
        ("alice-mgmt", "ALTER", "alice-topic", "TOPIC", True),
        ("alice-mgmt", "DELETE", "alice-topic", "TOPIC", False),
        ("broker", "CLUSTER_ACTION", "kafka-cluster", "CLUSTER", True),
        ("alice-mgmt", "CLUSTER_ACTION", "kafka-cluster", "CLUSTER", False),
        ("auditor", "DESCRIBE", "any", "TOPIC", True),
        ("auditor", "DESCRIBE", "any", "TRANSACTIONAL_ID", True),
        ("auditor", "READ", "any", "TOPIC", False),
        ("auditor", "DESCRIBE", "any", "DELEGATION_TOKEN", False),
        ("auditor", "DESCRIBE_TOKENS", "any", "TOPIC", False),
    ],
)
def test_the_plugin_is_answered(
    door: DoorServer, user: str, operation: str, name: str, type_: str, allowed: bool
) -> None:
    assert door.ask("allow", request(user, operation, name, type_)) is allowed


def test_patterns_and_principals_of_other_kinds_are_denied(door: DoorServer) -> None:
    assert door.ask("allow", request("alice-producer", "WRITE", "alice-topic")) is True
    assert (
        door.ask("allow", request("alice-producer", "WRITE", "alice-topic", pattern={"patternType": "PREFIXED"}))
        is False
    )
    assert door.ask("allow", request("alice-producer", "WRITE", "alice-topic", principalType="Group")) is False
