"""Parameters: an entry stands once for every combination of those that it mentions."""

from __future__ import annotations

import pytest
from shop_policy import Reads, Refuses


def requests(reads: Reads, text: str) -> list[str]:
    return [f"{c.request.user} {c.request.action} {c.request.resource}" for c in reads(text).cases]


def test_lists_make_every_combination_of_what_is_mentioned(reads: Reads) -> None:
    text = """\
        params: {who: [ann, ben], name: [x, y], other: [1, 2, 3]}
        cases: [{user: "{who}", action: read, resource: "item:s/a/{name}", decision: deny}]
        """
    assert sorted(requests(reads, text)) == [
        "ann read item:s/a/x",
        "ann read item:s/a/y",
        "ben read item:s/a/x",
        "ben read item:s/a/y",
    ]


def test_values_that_go_together(reads: Reads) -> None:
    text = """\
        params: {leaf: [{op: read, on: "item:s/a/x"}, {op: open, on: "store:s"}]}
        cases: [{user: ann, action: "{leaf.op}", resource: "{leaf.on}", decision: deny}]
        """
    assert requests(reads, text) == ["ann read item:s/a/x", "ann open store:s"]


def test_an_entry_has_its_own_and_names_of_let_bring_theirs(reads: Reads) -> None:
    text = """\
        params: {of: [READ]}
        let: {way: [["{of} (item:s/a/{name})"]]}
        needs: [{ask: read item:s/a/x, by: way, params: {name: [x, y]}}]
        """
    allowed = [case.holds for case in reads(text).cases if case.expected.allowed]
    assert {"READ (item:s/a/x)", "READ (item:s/a/y)"} <= set(allowed)


def test_each_case_has_its_own_resource_and_user(reads: Reads) -> None:
    text = """\
        cases: [{user: ann, action: create, resource: ["shelf:s/a", "shelf:s/b"], decision: allow, effects: ["grant ALL ({resource})"],
                 state: {grants: [{grantee: "user:ann", effect: allow, privilege: WRITE, entity: "store:s"}]}}]
        """
    assert [case.expected.effects for case in reads(text).cases] == [
        ("grant ALL (shelf:s/a)",),
        ("grant ALL (shelf:s/b)",),
    ]


@pytest.mark.parametrize(
    ("params", "message", "help_"),
    [
        ("{nmae: [x]}", "unknown parameter `{name}`", "did you mean `nmae`?"),
        ("{name: []}", "parameter `name` has no values", None),
        ("{user: [x], name: [y]}", "`user` is not a name for a parameter: each case has its own", None),
        ("{name: x}", "parameter `name` is `x`, not a list", None),
    ],
)
def test_mistakes_in_parameters(refuses: Refuses, params: str, message: str, help_: str | None) -> None:
    found = refuses(
        f'params: {params}\ncases: [{{user: ann, action: read, resource: "item:s/a/{{name}}", decision: deny}}]'
    )
    assert (message, help_) in [(d.message, d.help) for d in found]


def test_a_part_may_be_named_by_a_parameter(reads: Reads) -> None:
    text = """\
        params: {held: [one, two], name: [x, y]}
        let:
          load_one: [["READ (item:s/a/{name})"]]
          load_two: [["READ (shelf:s/a)"]]
        needs: [{ask: read item:s/a/x, by: "load_{held}"}]
        """
    allowed = [case.holds for case in reads(text).cases if case.expected.allowed]
    assert {"READ (item:s/a/x)", "READ (item:s/a/y)"} <= set(allowed)
    assert allowed.count("READ (shelf:s/a)") == 1


def test_an_unknown_parameter_in_a_part_named_by_one_is_reported_once(refuses: Refuses) -> None:
    text = """\
        params: {held: [one, two], other: [1, 2]}
        let: {load_one: [["READ (item:s/{other}/{name})"]], load_two: load_one}
        needs: [{ask: read item:s/a/x, by: "load_{held}"}]
        """
    assert [(d.code, d.message) for d in refuses(text)] == [("T106", "unknown parameter `{name}`")]
