"""Effects: the row of the state that each text adds or removes, in every engine's decisions."""

import copy
import pickle
from typing import Any

import pytest

from privtab.base.effects import Change, Effect, with_changes
from privtab.base.request import Decision, Entity, Request

REQUEST = Request(user="ann", action="create", resource=Entity("dataset", "web/new"))


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (
            "grant ALL (dataset:web/new)",
            {
                "add": "grants",
                "row": {"grantee": "user:ann", "effect": "allow", "privilege": "ALL", "entity": "dataset:web/new"},
            },
        ),
        (
            "become owner (dataset:web/new)",
            {"add": "owners", "row": {"entity": "dataset:web/new", "owner": "user:ann"}},
        ),
        ("become member (site:web)", {"add": "members", "row": {"user": "ann", "of": "site:web"}}),
        (
            "revoke READ (dataset:web/a b) (c)",
            {
                "remove": "grants",
                "row": {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "dataset:web/a b) (c"},
            },
        ),
        ("revoke owner (dataset:web/x)", {"remove": "owners", "row": {"entity": "dataset:web/x", "owner": "user:ann"}}),
        ("revoke assignments (user:web/ben)", {"remove": "assignments", "about": "user:web/ben"}),
        ("become owner (dataset)", {"add": "owners", "row": {"entity": None, "owner": "user:ann"}}),
        (
            "become owner by active_role (dataset:web/new)",
            {"add": "owners", "row": {"entity": "dataset:web/new", "owner": "role:etl"}},
        ),
    ],
)
def test_each_text_says_its_row(text: str, change: dict[str, Any]) -> None:
    found = Change.of(text, "ann", ["etl", "analyst"])
    assert found.to_json() == change
    assert Change.from_json(change) == found


def test_effects_survive_pickling_and_copying() -> None:
    text = "become owner (dataset:web/new)"
    effect = Effect(text, Change.of(text, "ann"))
    pickled = pickle.loads(pickle.dumps(effect))  # noqa: S301  # what this line wrote
    for twin in (pickled, copy.deepcopy(effect)):
        assert (twin, twin.change) == (effect, effect.change)


def test_a_decision_lists_changes_beside_its_effects() -> None:
    decision = Decision.from_engine(
        {"decision": True, "context": {"effects": ["become owner (dataset:web/new)"], "source": None}}, REQUEST
    )
    assert list(decision.context) == ["effects", "changes", "source"]
    assert decision.effects[0].change == Change("add", "owners", row={"entity": "dataset:web/new", "owner": "user:ann"})
    assert Decision.from_json(decision.to_json()).effects[0].change == decision.effects[0].change


def test_a_decision_without_changes_has_effects_without_a_change() -> None:
    (effect,) = Decision(allowed=True, context={"effects": ["become owner (dataset:web/new)"]}).effects
    assert (effect, effect.change) == ("become owner (dataset:web/new)", None)


@pytest.mark.parametrize(
    "context",
    [
        {"effects": ["become the owner of everything"]},
        {"effects": "become owner (dataset:web/new)"},
        {"effects": [7]},
        {"effects": ["become owner by active_role (dataset:web/new)"]},
        {"effects": ["become member by active_role (site:web)"]},
        {"effects": ["revoke owner by active_role (dataset:web/x)"]},
    ],
)
def test_texts_that_are_no_effects_are_refused(context: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="effect"):
        Decision.from_engine({"decision": True, "context": context}, REQUEST)


@pytest.mark.parametrize(
    "change",
    [
        None,
        {},
        {"add": "owners"},
        {"add": 7, "row": {}},
        {"remove": "owners", "row": {}, "about": "user:a"},
        {"add": "owners", "row": {"entity": 7}},
        {"add": "owners", "remove": "owners", "about": "user:a"},
    ],
)
def test_changes_of_another_shape_are_refused(change: object) -> None:
    context = {"effects": ["become owner (dataset:web/new)"], "changes": [change]}
    with pytest.raises(ValueError, match="change"):
        _ = Decision(allowed=True, context=context).effects


def test_a_context_without_effects_stays_as_it_is() -> None:
    assert with_changes({"effects": [], "missing": [["READ (site:web)"]]}, "ann", None) == {
        "effects": [],
        "missing": [["READ (site:web)"]],
    }
