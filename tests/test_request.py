from __future__ import annotations

from typing import Any

import pytest

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Decision, Entity, Request
from privtab.base.vocabulary import Vocabulary
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts

FULL: dict[str, Any] = {
    "subject": {"type": "user", "id": "alice", "properties": {"groups": ["hr"]}},
    "action": {"name": "load"},
    "resource": {"type": "table", "id": "m/c/s/t"},
    "context": {"with": {"object": {"type": "table", "id": "m/c/s/t"}}, "override": False},
}


@pytest.fixture(scope="module")
def known() -> Vocabulary:
    return vocabulary(pipeline.load_program("gravitino/1.1.0"))


def test_the_request_of_the_specification_is_read() -> None:
    request = Request.from_json(FULL)
    assert request == Request(
        user="alice",
        action="load",
        resource=Entity("table", "m/c/s/t"),
        groups=("hr",),
        with_={"object": Entity("table", "m/c/s/t")},
        flags=frozenset({"override=false"}),
    )
    assert Request.from_json(request.to_json()) == request


def test_objects_unused_by_the_row_are_not_validated(known: Vocabulary) -> None:
    known.check(Request.from_json(FULL))
    odd = {"object": Entity("nothing", "//"), "other": Entity("table", "m")}
    known.check(Request(user="a", action="load", resource=Entity("table", "m/c/s/t"), with_=odd))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("subject", None),
        ("subject", {"type": "group", "id": "hr"}),
        ("subject", {"type": "user", "id": ""}),
        ("subject", {"type": "user", "id": 5}),
        ("subject", {"type": "user", "id": "a", "properties": {"groups": "hr"}}),
        ("action", {"name": None}),
        ("action", {}),
        ("resource", {"id": "m"}),
        ("resource", {"type": "table", "id": ["m"]}),
        ("context", []),
        ("context", {"with": {"object": "table:m"}}),
    ],
)
def test_an_invalid_request_names_the_wrong_part(part: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=part):
        Request.from_json({**FULL, part: value})


def test_a_flag_is_set_unless_it_is_false() -> None:
    context = {"a": True, "b": False, "c": None, "d": 0, "e": "no"}
    assert Request.from_json({**FULL, "context": context}).flags == {"a", "b=false", "c", "d", "e"}


def test_flags_are_sent_as_they_were_read() -> None:
    request = Request.from_json({**FULL, "context": {"a": True, "b": False, "c=false": True}})
    assert request.flags == {"a", "b=false"}
    assert request.to_json()["context"] == {"a": True, "b": False}
    assert Request.from_json(request.to_json()) == request
    both = Request(user="a", action="b", resource=Entity("c", "d"), flags=frozenset({"a", "a=false"}))
    assert both.to_json()["context"] == {"a": True}, "a flag can only ask for more"


def test_the_vocabulary_of_the_bundle_is_that_of_the_program(known: Vocabulary) -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    assert Vocabulary.from_program(policy_artifacts(program).program) == known


def test_keys_go_from_the_root_down_and_stop_where_the_path_does(known: Vocabulary) -> None:
    assert known.keys(Entity("table", "m/c/s/t")) == ["metalake:m", "catalog:m/c", "schema:m/c/s", "table:m/c/s/t"]
    assert known.keys(Entity("table", "m/c/s")) == ["metalake:m", "catalog:m/c", "schema:m/c/s"]
    assert known.keys(Entity("metalake", "")) == []


def test_a_single_entity_has_its_parent_s_path() -> None:
    streams = vocabulary(pipeline.load_program("streams/teracloud"))
    assert streams.keys(Entity("instance_hosts", "d/i")) == ["domain:d", "instance:d/i", "instance_hosts:d/i"]
    assert streams.keys(Entity("job_group", "d/i/g"))[-2:] == ["jobs:d/i", "job_group:d/i/g"]


def test_the_error_about_a_missing_object_has_its_name(known: Vocabulary) -> None:
    request = Request(
        user="a", action="run", resource=Entity("job", "m"), with_={"templat": Entity("job_template", "m/t")}
    )
    with pytest.raises(InvalidRequest, match=r"needs context.with.template.*did you mean `templat`"):
        known.check(request)


@pytest.mark.parametrize("path", ["m/c/s/%41", "m/c/s/50%", "m/c/s/a%2fb"])
def test_an_escape_that_is_none_is_named(known: Vocabulary, path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"`%.*is not an escape"):
        known.check(Request(user="a", action="load", resource=Entity("table", path)))


def test_a_decision_reads_what_it_writes() -> None:
    decision = Decision(allowed=False, context={"rule": "s/t/o", "missing": [["A (t:x)", "B (t:x)"], ["owner (t:x)"]]})
    assert Decision.from_json(decision.to_json()) == decision
    assert not decision
    request = Request(user="ann", action="o", resource=Entity("t", "x"))
    assert decision.describe(request) == "user:ann may not `o` on t:x; missing: A (t:x) and B (t:x), or owner (t:x)"


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ([], "user:ann may not `o` on t:x"),
        ([["deny A (t:x) to role:r"]], "user:ann may not `o` on t:x; blocked by a denial of A (t:x) to role:r"),
        (
            [["deny A (t:x) to group:g", "deny A (t:x) to role:r"], ["owner (t:x)"]],
            "user:ann may not `o` on t:x; blocked by a denial of A (t:x) to group:g and a denial of A (t:x) to role:r; or missing: owner (t:x)",
        ),
        (
            [["A (t:x)", "deny A (t:x) to role:r"]],
            "user:ann may not `o` on t:x; missing: A (t:x), and blocked by a denial of A (t:x) to role:r",
        ),
    ],
)
def test_a_blocking_denial_is_described_as_one(missing: list[list[str]], sentence: str) -> None:
    decision = Decision(allowed=False, context={"missing": missing})
    assert decision.describe(Request(user="ann", action="o", resource=Entity("t", "x"))) == sentence
    assert [list(atoms) for atoms in decision.missing] == missing, "programs read it as it was"


def test_the_parts_of_a_decision_are_attributes() -> None:
    reason = {"atom": "A (t:x)", "on": "t:x", "through": "user:ann"}
    context = {"rule": "s/t/o", "missing": [["B (t:x)"]], "reasons": [reason], "effects": ["become owner (t:x)"]}
    decision = Decision(allowed=True, context=context | {"source": "d:1", "revision": "r"})
    assert (decision.rule, decision.missing, decision.reasons) == ("s/t/o", (("B (t:x)",),), (reason,))
    assert (decision.effects, decision.source, decision.revision) == (("become owner (t:x)",), "d:1", "r")
    bare = Decision(allowed=False)
    assert (bare.rule, bare.missing, bare.reasons, bare.effects, bare.source) == (None, (), (), (), None)
    for name in ("rule", "missing", "reasons", "effects", "source", "revision"):
        assert getattr(Decision, name).__doc__, name


@pytest.mark.parametrize("value", [None, True, {}, {"decision": "true"}, {"decision": True, "context": []}])
def test_an_invalid_decision_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match="not a decision"):
        Decision.from_json(value)
