"""A real Kafka obeys the table through a real OPA: its command line tools as users of the example state; and what the door denies."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from checkout import ROOT
from kafka_server import ANONYMOUS, LATEST, UNADDRESSED, VERSION, Kafka, Output, is_3, kafka
from seeds import daily, seeds
from signed_door import DoorServer, door_server
from unusual_names import CARRIED

from privtab import Embedded

STATE = ROOT / "policy_src" / "kafka" / "state.yaml"
USERS = ("olga", "mia", "ann", "ben", "shop-service", "pay-service", "importer", "gateway", "zoe")
RESOURCES = {
    "CLUSTER": ("DESCRIBE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CLUSTER_ACTION",
                "IDEMPOTENT_WRITE"),
    "TOPIC": ("DESCRIBE", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("DESCRIBE", "READ", "DELETE"),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}  # fmt: skip
"""The operations that Kafka's `AclEntry` has for each type of resource, and DELETE, which controllers ask of the cluster."""
HIDDEN = re.compile("does(?: not|n't) exist")
"""The words of tools about a topic that the user may not describe, by their versions."""
SINCE_4 = {"GROUP": ("DESCRIBE_CONFIGS", "ALTER_CONFIGS"), "TRANSACTIONAL_ID": ("TWO_PHASE_COMMIT",)}
"""What `AclEntry` has beside in Kafka 4."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]


@pytest.fixture(scope="module", params=[LATEST, pytest.param(VERSION, marks=pytest.mark.long)])
def release(request: pytest.FixtureRequest) -> str:
    """A release of Kafka."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def policy(release: str) -> str:
    """The table of the release."""
    return f"kafka/{release.rpartition('.')[0]}"


@pytest.fixture(scope="module")
def door(policy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    with door_server(tmp_path_factory.mktemp("kafka"), policy, "kafka", STATE) as server:
        yield server


@pytest.fixture(scope="module")
def table(door: DoorServer) -> Embedded:
    return door.embedded()


def request(
    user: str, operation: str, name: str, type_: str = "TOPIC", pattern: str = "LITERAL", kind: str = "User"
) -> dict[str, Any]:
    """A request as the authorizer sends it."""
    return {
        "action": {
            "logIfAllowed": True,
            "logIfDenied": True,
            "operation": operation,
            "resourcePattern": {"name": name, "patternType": pattern, "resourceType": type_, "unknown": False},
            "resourceReferenceCount": 1,
        },
        "requestContext": {
            "clientAddress": "/127.0.0.1",
            "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.1"},
            "connectionId": "127.0.0.1:19092-127.0.0.1:39538-0",
            "header": {
                "headerVersion": 2,
                "name": {"clientId": "1", "correlationId": 6, "requestApiKey": 63, "requestApiVersion": 1},
            },
            "listenerName": "CLIENT",
            "principal": {"name": user, "principalType": kind},
            "securityProtocol": "SASL_PLAINTEXT",
        },
    }


def test_every_question_has_the_tables_answer(release: str, door: DoorServer, table: Embedded) -> None:
    names = {
        "CLUSTER": ["kafka-cluster"],
        "TOPIC": ["orders", "payments", "returns", "news", "other"],
        "GROUP": ["bills", "other", "a/b"],
        "TRANSACTIONAL_ID": ["pay", "other"],
        "DELEGATION_TOKEN": ["t"],
        "USER": ["User:ann", "User:ben"],
    }
    answers, later = [], []
    for user in ("broker", ANONYMOUS, *USERS):
        for type_, operations in RESOURCES.items():
            for name in names[type_]:
                path = [] if type_ == "CLUSTER" else [name]
                for operation in SINCE_4.get(type_, ()):
                    expected = not is_3(release) and table.check(user, operation, (type_.lower(), path))
                    assert door.ask("allow", request(user, operation, name, type_)) is expected, (user, operation)
                    later.append(expected)
                for operation in operations:
                    expected = table.check(user, operation, (type_.lower(), path))
                    assert door.ask("allow", request(user, operation, name, type_)) is expected, (user, operation, name)
                    answers.append(expected)
        some = table.check(user, "IDEMPOTENT_WRITE", "cluster:") and user != "importer"
        assert door.ask("allow", request(user, "WRITE", "", "TOPIC", "PREFIXED")) is some, user
    assert 100 < answers.count(True) < len(answers) - 100
    assert set(later) == ({False} if is_3(release) else {True, False})


@pytest.mark.parametrize("changed", [
    {"operation": "READ_SHARED"}, {"operation": "ALL"}, {"operation": "ANY"}, {"operation": "UNKNOWN"},
    {"operation": "read"}, {"operation": "CREATE_TOKENS"}, {"type_": "CLIENT_METRICS"}, {"type_": "ANY"},
    {"type_": "topic"}, {"pattern": "PREFIXED"}, {"pattern": "PREFIXED", "name": ""}, {"pattern": "MATCH"},
    {"pattern": "ANY"}, {"name": ""}, {"kind": "Group"}, {"kind": "user"},
    {"type_": "CLUSTER", "operation": "ALTER"}, {"operation": "TWO_PHASE_COMMIT"}, {"user": ""}, {"user": "*"}, {"user": "user:olga"}, {"user": "User:olga"},
])  # fmt: skip
def test_what_the_door_does_not_know_is_denied(door: DoorServer, changed: dict[str, str]) -> None:
    known = {"user": "olga", "operation": "READ", "name": "orders"}
    assert door.ask("allow", request(**known)) is True
    assert door.ask("allow", request(**known | changed)) is False


def places(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in a request, from the outside in."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))


READ_PLACES = {
    ("action", "operation"),
    *(("action", "resourcePattern", key) for key in ("name", "patternType", "resourceType")),
    *(("requestContext", "principal", key) for key in ("name", "principalType")),
}
"""Where a request has what the door reads."""


def test_missing_and_oddly_typed_parts_are_denied(door: DoorServer) -> None:
    known = request("olga", "READ", "orders")
    for place in [place for place in places(known) if place]:
        read = any(one[: len(place)] == place for one in READ_PLACES)
        for odd in (..., None, 5, True, 1.5, [], {}, ["READ"], {"name": "orders"}, ""):
            asked = copy.deepcopy(known)
            *outer, last = place
            inside: Any = asked
            for key in outer:
                inside = inside[key]
            if odd is ...:
                del inside[last]
            else:
                inside[last] = odd
            assert door.ask("allow", asked) is not read, (place, odd)
    for whole in (None, 5, [], [known], "READ", {"input": known}):
        assert door.ask("allow", whole) is False


def test_names_of_any_kind(door: DoorServer, table: Embedded) -> None:
    """Groups and transactional ids have names of any signs: a name is one name."""
    chance = random.Random(0)
    for name in ("*", "?", *chance.sample(CARRIED, min(len(CARRIED), 100))):
        for user in ("olga", "ben"):
            expected = table.check(user, "READ", ("group", [name]))
            assert door.ask("allow", request(user, "READ", name, "GROUP")) is expected, (user, name)


def test_the_reason_of_a_refusal(door: DoorServer) -> None:
    assert door.ask("refused", request("olga", "READ", "orders")) is None
    assert door.ask("refused", request("olga", "SHARE", "orders"))["reason"] == "unknown_operation"
    assert door.ask("refused", request("olga", "READ", "orders", "SHELF"))["reason"] == "unknown_resource"


@pytest.fixture(scope="module")
def asked(policy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    """A door that nobody asks but Kafka."""
    folder = tmp_path_factory.mktemp("asked")
    rows = yaml.safe_load(STATE.read_text(encoding="utf-8"))
    rows["grants"] += [
        {"grantee": f"user:{user}", "effect": effect, "privilege": privilege, "entity": entity}
        for seed in GENERATED
        for user, effect, privilege, entity in generated(seed)
    ]
    (folder / "state.json").write_text(json.dumps(rows), encoding="utf-8")
    with door_server(folder, policy, "kafka", folder / "state.json") as server:
        yield server


@pytest.fixture(scope="module")
def broker(release: str, asked: DoorServer) -> Iterator[Kafka]:
    """A broker with topics, of which one has records, and the group that read them."""
    authorizer = {
        "authorizer.class.name": "org.openpolicyagent.kafka.OpaAuthorizer",
        "opa.authorizer.url": f"{asked.url}/allow",
        "opa.authorizer.cache.expire.after.seconds": "0",
    }
    users = [*USERS, *(f"s{seed}{one}" for seed in GENERATED for one in "ab")]
    with kafka(authorizer, users, release) as running:
        for topic in ("orders", "payments", "news", "spare"):
            assert create(running, "olga", topic).code == 0
        assert not produce(running, "olga", "orders").denied
        assert "hello" in consume(running, "olga", "orders", "bills").printed
        yield running


TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIG = ("--command-config", "CONFIG")


def create(broker: Kafka, user: str, topic: str) -> Output:
    return broker.run(user, TOPICS, *CONFIG, "--create", "--topic", topic)


def delete(broker: Kafka, user: str, topic: str) -> Output:
    return broker.run(user, TOPICS, *CONFIG, "--delete", "--topic", topic)


def produce(broker: Kafka, user: str, topic: str, idempotent: bool = True) -> Output:
    chosen = ("--producer-property", f"enable.idempotence={str(idempotent).lower()}")
    words = ("--topic", topic, "--producer.config", "CONFIG", *chosen)
    return broker.run(user, "kafka.tools.ConsoleProducer", *words, given="hello\n")


def plainly(broker: Kafka, user: str, topic: str) -> Output:
    return produce(broker, user, topic, idempotent=False)


def consume(broker: Kafka, user: str, topic: str, group: str) -> Output:
    words = ("--topic", topic, "--group", group, "--consumer.config", "CONFIG", "--from-beginning")
    limits = ("--max-messages", "1", "--timeout-ms", "20000")
    return broker.run(user, "org.apache.kafka.tools.consumer.ConsoleConsumer", *words, *limits)


def transaction(broker: Kafka, user: str, topic: str, identifier: str) -> Output:
    words = ("--topic", topic, "--transactional-id", identifier, "--producer.config", "CONFIG")
    sent = ("--num-records", "2", "--record-size", "5", "--throughput", "-1", "--transaction-duration-ms", "1")
    return broker.run(user, UNADDRESSED, *words, *sent)


def show_group(broker: Kafka, user: str, group: str) -> Output:
    return broker.run(user, CONFIGS, *CONFIG, "--describe", "--group", group)


def change_group(broker: Kafka, user: str, group: str) -> Output:
    changed = ("--add-config", "consumer.session.timeout.ms=46000")
    return broker.run(user, CONFIGS, *CONFIG, "--alter", "--group", group, *changed)


def partitions(broker: Kafka, user: str, topic: str) -> Output:
    return broker.run(user, TOPICS, *CONFIG, "--alter", "--topic", topic, "--partitions", "2")


def show_settings(broker: Kafka, user: str, topic: str) -> Output:
    return broker.run(user, CONFIGS, *CONFIG, "--describe", "--topic", topic)


def change_settings(broker: Kafka, user: str, topic: str) -> Output:
    return broker.run(user, CONFIGS, *CONFIG, "--alter", "--topic", topic, "--add-config", "retention.ms=1000000")


def show_broker(broker: Kafka, user: str) -> Output:
    return broker.run(user, CONFIGS, *CONFIG, "--describe", "--broker", "1")


def change_broker(broker: Kafka, user: str) -> Output:
    return broker.run(user, CONFIGS, *CONFIG, "--alter", "--broker", "1", "--add-config", "log.cleaner.threads=1")


def delete_group(broker: Kafka, user: str, group: str) -> Output:
    return broker.run(user, GROUPS, *CONFIG, "--delete", "--group", group)


def token(broker: Kafka, user: str, owner: str) -> Output:
    words = ("--create", "--max-life-time-period", "-1", "--owner-principal", owner)
    return broker.run(user, "org.apache.kafka.tools.DelegationTokenCommand", *CONFIG, *words)


@dataclass(frozen=True)
class Act:
    """What a tool does, and the rows of the table that it takes; `{0}` stands for its first argument."""

    run: Callable[..., Output]
    rows: Sequence[tuple[str, str]]


ACTS = {
    "create": Act(create, [("CREATE", "topic:{0}")]),
    "delete": Act(delete, [("DESCRIBE", "topic:{0}"), ("DELETE", "topic:{0}")]),
    "partitions": Act(partitions, [("DESCRIBE", "topic:{0}"), ("ALTER", "topic:{0}")]),
    "produce": Act(produce, [("WRITE", "topic:{0}"), ("IDEMPOTENT_WRITE", "cluster:")]),
    "plainly": Act(plainly, [("WRITE", "topic:{0}")]),
    "consume": Act(consume, [("READ", "topic:{0}"), ("READ", "group:{1}")]),
    "transaction": Act(transaction, [("WRITE", "topic:{0}"), ("WRITE", "transactional_id:{1}")]),
    "show_settings": Act(show_settings, [("DESCRIBE_CONFIGS", "topic:{0}")]),
    "change_settings": Act(change_settings, [("DESCRIBE_CONFIGS", "topic:{0}"), ("ALTER_CONFIGS", "topic:{0}")]),
    "show_broker": Act(show_broker, [("DESCRIBE_CONFIGS", "cluster:")]),
    "change_broker": Act(change_broker, [("DESCRIBE_CONFIGS", "cluster:"), ("ALTER_CONFIGS", "cluster:")]),
    "token": Act(token, [("CREATE_TOKENS", "user:{0}")]),
    "delete_group": Act(delete_group, [("DELETE", "group:{0}")]),
    "show_group": Act(show_group, [("DESCRIBE_CONFIGS", "group:{0}")]),
    "change_group": Act(change_group, [("DESCRIBE_CONFIGS", "group:{0}"), ("ALTER_CONFIGS", "group:{0}")]),
}  # fmt: skip
DONE = [
    ("create", "ann other"), ("create", "ann returns"), ("create", "zoe returns"), ("create", "olga more"),
    ("delete", "mia spare"), ("delete", "ann orders"), ("delete", "ann returns"), ("delete", "olga more"),
    ("partitions", "ben orders"), ("partitions", "ann orders"),
    ("produce", "ann orders"), ("produce", "shop-service orders"), ("produce", "ann payments"),
    ("produce", "importer orders"), ("produce", "zoe orders"), ("produce", "ben orders"),
    ("plainly", "shop-service orders"), ("plainly", "importer orders"), ("plainly", "pay-service orders"),
    ("consume", "ben orders bills"), ("consume", "ben orders other"), ("consume", "ben payments bills"),
    ("consume", "ann orders bills"), ("consume", "ANONYMOUS news bills"),
    ("transaction", "pay-service payments pay"), ("transaction", "pay-service payments other"),
    ("transaction", "pay-service orders pay"), ("transaction", "ann orders pay"),
    ("show_settings", "ann orders"), ("show_settings", "mia orders"), ("show_settings", "ben orders"),
    ("change_settings", "ann orders"), ("change_settings", "mia orders"), ("change_settings", "olga payments"),
    ("show_broker", "olga"), ("show_broker", "mia"), ("change_broker", "olga"), ("change_broker", "ann"),
    ("token", "gateway User:ann"), ("token", "gateway User:ben"), ("token", "zoe User:ann"),
    ("delete_group", "ann bills"), ("delete_group", "ben bills"),
]  # fmt: skip
"""In this order: an act, who does it, and what it is done with."""


DONE_SINCE_4 = [
    ("show_group", "olga bills"), ("show_group", "ann bills"), ("change_group", "ann bills"), ("change_group", "mia bills"),
    ("change_group", "olga bills"),
]  # fmt: skip


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "every"])
def test_tools_are_allowed_what_the_table_allows(release: str, broker: Kafka, table: Embedded, every: bool) -> None:
    """Some: each act where it is first allowed and where it is first denied."""
    done = DONE if is_3(release) else [*DONE_SINCE_4, *DONE]
    seen: dict[str, set[bool]] = {name: set() for name, _ in done}
    for name, words in done:
        user, *given = words.split()
        expected = all(table.check(user, row, on.format(*given)) for row, on in ACTS[name].rows)
        if expected in seen[name] and not every:
            continue
        output = ACTS[name].run(broker, user, *given)
        hidden = bool(HIDDEN.search(output.printed))  # a topic that the user may not describe
        assert bool(output.denied or hidden) is not expected, (name, words, output)
        seen[name].add(expected)
    assert all(answers == {True, False} for answers in seen.values()), seen


GENERATED = daily(8)
"""The seeds of generated rights, a fixed one and others each day: two users for each."""
OF_TYPES = {
    "cluster:": ("DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE", "CREATE"),
    "topics:": ("READ", "WRITE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER", "CREATE"),
    **dict.fromkeys(("topic:orders", "topic:news"), ("READ", "WRITE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER")),
    **dict.fromkeys(("groups:", "group:bills"), ("READ",)),
    **dict.fromkeys(("transactional_ids:", "transactional_id:pay"), ("WRITE",)),
}
TRIED = (
    "produce",
    "plainly",
    "consume",
    "transaction",
    "show_settings",
    "change_settings",
    "partitions",
    "show_broker",
)


def generated(seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Random grants for the users of a seed: (user, effect, privilege, entity)."""
    dice = random.Random(seed)
    for user in (f"s{seed}a", f"s{seed}b"):
        for _ in range(dice.randrange(6, 14)):
            entity = dice.choice(list(OF_TYPES))
            yield user, "deny" if dice.random() < 0.2 else "allow", dice.choice(OF_TYPES[entity]), entity


@pytest.mark.parametrize("seed", seeds(GENERATED, quick=0, full=0))
def test_generated_rights_are_obeyed(broker: Kafka, asked: DoorServer, seed: int) -> None:
    table, dice, seen = asked.embedded(), random.Random(seed), set()
    for user in (f"s{seed}a", f"s{seed}b"):
        for name in TRIED:
            topic = dice.choice(("orders", "news"))
            second = {"consume": "bills", "transaction": "pay"}.get(name)
            given = [] if name == "show_broker" else [topic, second] if second else [topic]
            expected = all(table.check(user, row, on.format(*given)) for row, on in ACTS[name].rows)
            output = ACTS[name].run(broker, user, *given)
            hidden = bool(HIDDEN.search(output.printed))
            assert bool(output.denied or hidden) is not expected, (name, user, given, output)
            seen.add(expected)
    assert seed != 0 or seen == {True, False}  # rights of another day may allow nothing


def test_what_is_listed(broker: Kafka) -> None:
    def topics(user: str) -> set[str]:
        listed = broker.run(user, TOPICS, *CONFIG, "--list")
        assert listed.code == 0, listed
        return set(listed.printed.split()) & {"orders", "payments", "news"}

    assert topics("olga") == {"orders", "payments", "news"}
    assert topics("mia") == {"orders", "news"}
    assert topics("ann") == {"orders", "news"}
    assert topics("zoe") == topics(ANONYMOUS) == {"news"}
    assert "hello" in consume(broker, "olga", "orders", "audit").printed
    assert "audit" in broker.run("mia", GROUPS, *CONFIG, "--list").printed
    assert "audit" not in broker.run("zoe", GROUPS, *CONFIG, "--list").printed


def test_an_idempotent_producer_needs_write_on_some_topic(broker: Kafka) -> None:
    """Who writes no topic fails as soon as the producer starts, and who writes another one fails at the topic."""
    assert "ClusterAuthorizationException" in produce(broker, "ben", "orders").denied
    for user in ("pay-service", "importer"):
        assert "TopicAuthorizationException" in produce(broker, user, "orders").denied
    assert produce(broker, "shop-service", "orders").denied == []


def test_whatever_kafka_asked_was_known_to_the_door(broker: Kafka, asked: DoorServer, door: DoorServer) -> None:
    """No question of the broker was denied because the door did not know it, and its own principal did its work."""
    assert not consume(broker, "olga", "orders", "last").denied
    sent = [line["input"] for line in asked.decision_logs()]
    by = {(one["requestContext"]["principal"]["name"], one["action"]["operation"]) for one in sent}
    assert {("broker", "CLUSTER_ACTION"), ("broker", "CREATE"), ("olga", "READ")} <= by
    assert [one for one in sent if door.ask("refused", one) is not None] == []


def test_the_log_is_decided_again(policy: str, broker: Kafka, asked: DoorServer) -> None:
    """What Kafka asked is read back from OPA's log as the table's requests, and answered the same."""
    assert not consume(broker, "olga", "orders", "logged").denied
    found = asked.replayed(policy, asked.opa.log.parent / "state.json")
    assert (found.count("lost"), found.count("gained"), found.count("unexplained"), found.not_replayed) == (0, 0, 0, {})
    assert found.replayed > found.allowed > 20
