"""Models of OpenFGA as policies: what they allow is what the model allows, by an evaluator of models that reads none of the policy."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from seeds import seeds

from privtab.base import Entity, FileError, Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_connect.importing.imported import imported
from privtab_connect.models.fga import Computed, Derived, Direct, Joined, Model, Tree, read
from privtab_connect.models.reading import kind_of, policy_of

Tuples: TypeAlias = Sequence[tuple[str, str, str]]
DRIVE = """\
model
  schema 1.1

# people
type user
type group
  relations
    define member: [user, group#member]
type team
  relations
    define lead: [user]
    define member: [user] or lead
type folder
  relations
    define owner: [user, group#member] or owner from parent  # reaches down
    define parent: [team, folder]
    define viewer: [user, user:*, group#member] or owner or viewer from parent
type doc
  relations
    define parent: [folder]
    define owner: [user]
    define can_read: viewer or owner or viewer from parent
    define can_share: owner and (viewer or can_read)
    define viewer: [user, user:*, group#member]
"""
WHOLE = DRIVE.replace("[team, folder]", "[folder]")


def derived(text: str) -> Derived:
    return Derived(read(text, "model.fga"), "drive", "model.fga")


def program(made: Derived) -> Program:
    return load_program(SourceFile.of("policy.yaml", made.text))


def told(made: Derived) -> list[str]:
    return [str(unsaid) for unsaid in made.unsaid]


class Evaluator:
    """OpenFGA's meaning: who has a relation to an object, by the model and the tuples alone."""

    def __init__(self, model: Model, tuples: Tuples) -> None:
        self.model, self.tuples = model, tuples

    def has(self, user: str, relation: str, of: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
        found = self.model[of.partition(":")[0]].get(relation)
        return (
            found is not None
            and (of, relation) not in seen
            and self._tree(found.tree, user, relation, of, seen | {(of, relation)})
        )

    def _tree(self, tree: Tree, user: str, relation: str, of: str, seen: frozenset[tuple[str, str]]) -> bool:
        whole = partial(self._tree, user=user, relation=relation, of=of, seen=seen)
        match tree:
            case Direct():
                named = [subject for subject, word, where in self.tuples if (word, where) == (relation, of)]
                return any(self._is(user, subject, seen) for subject in named)
            case Computed(relation=other, place=""):
                return self.has(user, other, of, seen)
            case Computed(relation=other, place=place):
                around = [subject for subject, word, where in self.tuples if (word, where) == (place, of)]
                return any(self.has(user, other, above, seen) for above in around)
            case Joined(word="or", parts=parts):
                return any(whole(part) for part in parts)
            case Joined(word="and", parts=parts):
                return all(whole(part) for part in parts)
            case Joined(parts=(base, taken)):
                return whole(base) and not whole(taken)
        raise AssertionError(tree)

    def _is(self, user: str, subject: str, seen: frozenset[tuple[str, str]]) -> bool:
        of, _, relation = subject.partition("#")
        return self.has(user, relation, of, seen) if relation else subject in {user, "user:*"}


def decided(folder: Path, made: Derived, tuples: Tuples) -> tuple[Callable[[str, str, str], bool], Program]:
    """What the policy decides of the tuples, which are imported."""
    source, policy = folder / "tuples.json", program(made)
    source.write_text(json.dumps([{"user": u, "relation": r, "object": o} for u, r, o in tuples]), encoding="utf-8")
    result = imported(policy, "openfga", str(source), values=made.values())
    assert made.unsaid or not result.refused(strict=False, allow_partial=False, accept=())
    state, findings = validate(policy, from_tables(result.state.to_tables(), "rows"))
    assert all(finding.severity == "note" for finding in findings), findings
    reference = Reference(policy, state)

    def decide(user: str, relation: str, of: str) -> bool:
        request = Request(user=user.removeprefix("user:"), action=relation, resource=Entity.parse(of))
        return reference.decide(request).allowed

    return decide, policy


WORDS = ("owner", "viewer", "r", "s")
RELATIONS = {"org": WORDS, "folder": WORDS, "doc": WORDS}
REACH = {"org": "[user]", "folder": "[user] or reach from parent or reach from org", "doc": "reach from parent"}
"""A relation that uses every place, so that each is one."""
PLACES = {"org": {}, "folder": {"parent": ["folder"], "org": ["org"]}, "doc": {"parent": ["folder"]}}


def random_model(chance: random.Random) -> Model:
    """A model of organizations, folders in folders and documents, with relations at random."""

    def part(kind: str, word: str, depth: int) -> str:
        inherits = kind == "doc" or (kind == "folder" and chance.random() < 0.1)
        choices = ["direct", "computed", *(["from"] * 2 if inherits else []), *(["joined"] if depth else [])]
        match chance.choice(choices):
            case "direct":
                return chance.choice(["[user]", "[user, group#member]", "[user, user:*]"])
            case "computed":
                return chance.choice([other for other in RELATIONS[kind] if other > word] or ["[user]"])
            case "from":
                place = chance.choice(sorted(PLACES[kind]))
                return f"{chance.choice([word, chance.choice(RELATIONS[kind])])} from {place}"
        joint = chance.choice([" or "] * 12 + [" and "] * 3 + [" but not "])
        count = 2 if joint == " but not " else chance.choice([2, 3])
        return "(" + joint.join(part(kind, word, depth - 1) for _ in range(count)) + ")"

    lines = ["model", "schema 1.1", "type user", "type group", "relations", "define member: [user]"]
    for kind, words in RELATIONS.items():
        lines += [f"type {kind}", "relations"]
        lines += [f"define {place}: [{', '.join(types)}]" for place, types in PLACES[kind].items()]
        lines.append(f"define reach: {REACH[kind]}")
        for word in words:
            above = [
                f"{word} from {place}" for place in sorted(PLACES[kind]) if kind == "folder" and chance.random() < 0.6
            ]
            lines.append(f"define {word}: {' or '.join([*above, part(kind, word, 2)])}")
    return read("\n".join(lines), "model.fga")


def random_tuples(chance: random.Random, model: Model) -> Tuples:
    tuples = [
        ("org:o", "org", "folder:a"),
        ("folder:a", "parent", "folder:b"),
        ("folder:b", "parent", "doc:d"),
        ("folder:a", "parent", "doc:e"),
    ]
    tuples += [("user:ann", "member", "group:g")] * chance.randrange(2)
    for of in ("org:o", "folder:a", "folder:b", "doc:d", "doc:e"):
        for word, relation in model[of.partition(":")[0]].items():
            types = [each for d in _directs(relation.tree) for each in d.types]
            if word not in {"parent", "org"} and types and chance.random() < 0.35:
                who = {
                    "user": chance.choice(["user:ann", "user:bob"]),
                    "user:*": "user:*",
                    "group#member": "group:g#member",
                }
                tuples.append((who[chance.choice(types)], word, of))
    return tuples


def _directs(tree: Tree) -> list[Direct]:
    parts = tree.parts if isinstance(tree, Joined) else ()
    return [tree] if isinstance(tree, Direct) else [found for part in parts for found in _directs(part)]


@pytest.mark.parametrize("seed", seeds(range(400), quick=40))
def test_a_policy_allows_what_its_model_allows(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    model = random_model(chance)
    made = Derived(model, "drive", "model.fga")
    tuples = random_tuples(chance, model)
    decide, _ = decided(tmp_path, made, tuples)
    evaluator = Evaluator(model, tuples)
    for user in ("user:ann", "user:bob"):
        for of in ("org:o", "folder:a", "folder:b", "doc:d", "doc:e"):
            for relation in (*WORDS, "reach"):
                allowed, expected = decide(user, relation, of), evaluator.has(user, relation, of)
                assert allowed == expected or (made.unsaid and not allowed), (
                    made.text,
                    tuples,
                    user,
                    relation,
                    of,
                    told(made),
                )


def test_random_models_are_said_whole_often_enough() -> None:
    whole = [not Derived(random_model(random.Random(seed)), "drive", "model.fga").unsaid for seed in range(400)]
    assert 60 < sum(whole) < 340


def test_a_store_decides_as_its_tuples_say(tmp_path: Path) -> None:
    made = derived(WHOLE)
    assert told(made) == []
    assert made.values() == {"parent": "parent", "outermost": "folder"}
    tuples = [
        ("user:beth", "member", "group:eng"),
        ("folder:plans", "parent", "folder:q1"),
        ("folder:q1", "parent", "doc:a/b"),
        ("user:anne", "owner", "folder:plans"),
        ("group:eng#member", "viewer", "folder:q1"),
        ("user:*", "viewer", "doc:open"),
        ("folder:q1", "parent", "doc:open"),
        ("user:carl", "member", "team:red"),
    ]
    decide, _ = decided(tmp_path, made, tuples)
    evaluator = Evaluator(made.model, tuples)
    for user in ("user:anne", "user:beth", "user:carl", "user:zed"):
        for relation, of in (
            ("can_read", "doc:a/b"),
            ("can_read", "doc:open"),
            ("viewer", "folder:q1"),
            ("owner", "folder:q1"),
            ("member", "team:red"),
        ):
            asked = of.replace("a/b", "a%2Fb")
            assert decide(user, relation, asked) == evaluator.has(user, relation, of), (user, relation, of)


@pytest.mark.parametrize(
    ("define", "told_of"),
    [
        ("define x: viewer but not owner", "`x` of `doc`: `but not`: a table says what is allowed alone"),
        ("define x: [user with in_office]", "`x` of `doc`: `user with in_office`: a condition"),
        ("define x: [team#member]", "`x` of `doc`: `team#member`: neither users, the members of a group, nor a role"),
        ("define x: [team]", "`x` of `doc`: `team`: neither users, the members of a group, nor a role"),
        ("define x: nothing", "`x` of `doc`: `doc` has no relation `nothing`"),
        ("define x: owner from viewer", "`x` of `doc`: `owner from viewer`: `viewer` is no place, as its tuples are not of entities alone"),
        ("define x: x", "`x` of `doc`: it is defined by itself"),
    ],
)  # fmt: skip
def test_what_a_table_cannot_say_is_named_with_its_place(define: str, told_of: str) -> None:
    made = derived(WHOLE + f"    {define}\n")
    assert told(made) == [f"model.fga:25:12: error: {told_of}"]
    assert '    x: "nobody"' in made.text
    program(made)


def test_a_place_elsewhere_that_names_users_is_an_operation(tmp_path: Path) -> None:
    made = derived(WHOLE + "type child\n  relations\n    define parent: [user]\n    define can_fetch: parent\n")
    assert told(made) == []
    tuples = [("folder:a", "parent", "doc:d"), ("user:ann", "parent", "child:c"), ("user:bob", "viewer", "folder:a")]
    decide, _ = decided(tmp_path, made, tuples)
    evaluator = Evaluator(made.model, tuples)
    asked = [
        (user, word, of)
        for user in ("user:ann", "user:bob")
        for word, of in (("parent", "child:c"), ("can_fetch", "child:c"), ("can_read", "doc:d"))
    ]
    assert [decide(*each) for each in asked] == [evaluator.has(*each) for each in asked]
    assert [evaluator.has(*each) for each in asked] == [True, True, False, False, False, True]


def test_two_places_are_one_too_many() -> None:
    made = derived(DRIVE)
    assert [each.of for each in made.unsaid] == []
    made = derived(
        WHOLE.replace(
            "define parent: [folder]\n    define owner: [user]\n",
            "define parent: [folder, team]\n    define owner: [user]\n",
        )
    )
    assert [each.why for each in made.unsaid] == ["it lies in `folder` and in `team`; the second is left out",
                                                  "`viewer from parent`: `team` is not what it lies in"]  # fmt: skip


@pytest.mark.parametrize(
    "another", ["", "type note\n  relations\n    define origin: [folder]\n    define r: viewer from origin\n"]
)
@pytest.mark.parametrize("used", ["", "    define copier: viewer from origin\n"])
def test_two_relations_to_entities_of_one_type_are_one_place(used: str, another: str, tmp_path: Path) -> None:
    made = derived(WHOLE + "    define origin: [folder]\n" + used + another)
    whose = [("user:ann", "viewer", "folder:f"), ("folder:g", "parent", "folder:f")]
    if not used + another:
        assert made.values()["parent"] == "parent"
        return
    assert any("a second place in a folder" in each for each in told(made))
    decide, _ = decided(tmp_path, made, [*whose, ("folder:f", "origin", "doc:d"), ("folder:g", "parent", "doc:d")])
    assert not decide("user:ann", "can_read", "doc:d")
    assert made.values()["parent"] == "parent"


def test_a_type_called_anyone_is_not_everybody() -> None:
    made = derived(WHOLE + "    define x: [anyone]\ntype anyone\n")
    assert '    x: "nobody"' in made.text
    assert told(made) == [
        "model.fga:25:12: error: `x` of `doc`: `anyone`: neither users, the members of a group, nor a role"
    ]


STAFF = """\
model
  schema 1.1
type user
type group
  relations
    define member: [user]
type role
  relations
    define assignee: [user, group#member, role#assignee]
type page
  relations
    define reader: [role#assignee]
"""


def test_roles_that_roles_hold(tmp_path: Path) -> None:
    made = derived(STAFF)
    assert told(made) == []
    tuples = [
        ("user:ida", "assignee", "role:chief"),
        ("user:ole", "member", "group:night"),
        ("group:night#member", "assignee", "role:clerk"),
        ("role:chief#assignee", "assignee", "role:clerk"),
        ("role:chief#assignee", "reader", "page:plan"),
        ("role:clerk#assignee", "reader", "page:log"),
    ]
    decide, _ = decided(tmp_path, made, tuples)
    asked = [
        (user, "reader", page) for user in ("user:ida", "user:ole", "user:ulf") for page in ("page:plan", "page:log")
    ]
    evaluator = Evaluator(made.model, tuples)
    assert [decide(*each) for each in asked] == [evaluator.has(*each) for each in asked]
    assert [evaluator.has(*each) for each in asked] == [True, True, False, True, False, False]


def test_a_role_of_members_whom_the_model_works_out_is_nobodys(tmp_path: Path) -> None:
    hired = "define hired: [user]\n    define member: [user] and hired"
    made = derived(STAFF.replace("define member: [user]", hired))
    assert {(each.of, each.why) for each in made.unsaid} >= {
        ("`assignee` of `role`", "`group#member`: the model works them out"),
        ("`reader` of `page`", "`role#assignee`: the model works them out"),
    }
    tuples = [
        ("user:ole", "member", "group:night"),
        ("group:night#member", "assignee", "role:clerk"),
        ("role:clerk#assignee", "reader", "page:log"),
    ]
    decide, _ = decided(tmp_path, made, tuples)
    assert not decide("user:ole", "reader", "page:log")


CHILD = "type child\n  relations\n    define parent: [user, team]\n"


@pytest.mark.parametrize(
    ("model", "told_of"),
    [
        (WHOLE + CHILD, "27:12: error: `parent` of `child`: `team`: neither users, the members of a group, nor a role"),
        (WHOLE.replace("type team", "    define can_view: member\ntype team"), "9:12: error: `can_view` of `group`: a relation to a group, which is a principal"),
        (WHOLE.replace("type user\n", "type user\n  relations\n    define manager: [user]\n", 1), "7:12: error: `manager` of `user`: a relation to a user, which is a principal"),
        (STAFF.replace("define member: [user]", "define member: [user, role#assignee]"), "6:12: error: `member` of `group`: `role#assignee`: users and groups alone are members"),
    ],
)  # fmt: skip
def test_one_thing_that_a_table_cannot_say_is_all_that_is_named(model: str, told_of: str) -> None:
    assert told(derived(model)) == [f"model.fga:{told_of}"]


def test_members_whom_the_model_works_out_are_not_those_of_the_tuples() -> None:
    group = "define banned: [user]\n    define member: [user] but not banned"
    made = derived(WHOLE.replace("define member: [user, group#member]", group))
    assert '    viewer: "nobody"' in made.text.partition("  doc:\n    owner:")[2]
    assert any("`group#member`: the model works them out" in each for each in told(made))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model\n  schema 1.0\n", "model.fga:2:10: a model of schema 1.0"),
        ("model\n  schema 1.1\ntype a\n  relations\n    define x: b or c and d\n", "model.fga:5:22: expected `condition` or `define` or `or` or `type` or the end, not `and`"),
        ("model\n  schema 1.1\ntype a\n  relations\n    define x: [user\n", "model.fga:6:1: expected "),
        ("model\n  schema 1.1\nwhat a\n", "model.fga:3:1: expected `condition` or `type` or the end, not `what`"),
        ("model\n  schema 1.1\ncondition c(x: string) {\n  x == '{'\n", "model.fga:3:1: expected `condition` or `type` or the end, not `condition`"),
        ("{}", "model.fga: a model in JSON; `fga model transform --file=model.fga` writes it"),
        ("model\n  schema 1.1\ntype a\ntype a\n", "model.fga:4:6: a second type `a`"),
        ("model\n  schema 1.1\ntype a\n  relations\n    define x: [user] but not y\n    define x: [user]\n", "model.fga:6:12: a second relation `x` of `a`"),
        ("model\n  schema 1.1\ntype a\n  relations\n    define x: [user]\n    define x: [user]\ntype a\n", "model.fga:6:12: a second relation `x` of `a`\nmodel.fga:7:6: a second type `a`"),
        ("model\n  schema 1.1\ntype a\n  relations\n    define x: [group:member]\n", "model.fga:5:21: expected `#` or `:*` or `,` or `]` or `with`, not `:`"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_an_error_at_its_place(text: str, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read(text, "model.fga")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "model: |\n  model\n    schema 1.1\n  type user\ntuples: []\n",
        "name: Shop\nmodel_file: ./model.fga\ntuple_file: ./tuples.yaml\n",
        "# Load order doesn't matter\nschema: '1.2'\ncontents:\n  - core.fga\n",
        "module core\n\n# people\ntype user\n",
        "module shop\n  extend type user\n",
    ],
    ids=["store", "files", "modules", "module", "extension"],
)
def test_a_store_file_and_a_module_are_no_whole_model(text: str, tmp_path: Path) -> None:
    file = tmp_path / "store.fga.yaml"
    file.write_text(text)
    assert kind_of(text, policies=False) == "a model of OpenFGA"
    with pytest.raises(
        FileError, match=r"store\.fga\.yaml: modules or a store; a model that begins with `model` is read"
    ):
        policy_of(file, None, None)


def test_only_a_model_is_taken_for_one() -> None:
    assert kind_of('{"schema_version": "1.1", "type_definitions": []}', policies=False) == "a model of OpenFGA"
    others = (
        '{"catalogs": [{"user": "admin", "allow": "all"}]}',
        "module permissions\n| Role | Read |\n",
        "# model:\n",
    )
    assert [kind_of(text, policies=False) for text in (*others, "\n" * 100_000 + "<table>")] == [None] * 4


def test_what_a_table_cannot_say_is_told_in_the_order_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "model.fga"
    last = "define a: b\n    define z: [bot]\n    define b: [bot]"
    file.write_text(f"model\n  schema 1.1\ntype user\ntype bot\ntype doc\n  relations\n    {last}\n")
    lines = [each.place.split(":")[-2:] for each in policy_of(file, None, None).unsaid]
    assert lines == [["8", "12"], ["9", "12"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model\n  schema 1.1\ntype a\n  relations\n    define x\\u0020or\\u0020anyone: [user]\n", "model.fga:5:12: `x\\u0020or\\u0020anyone` of `a` cannot be a name in a policy"),
        ("model\n  schema 1.1\ntype a|b\n  relations\n    define x: [user]\n    define x&y: [user]\n", "model.fga:3:6: `a|b` of `a|b` cannot be a name in a policy\nmodel.fga:6:12: `x&y` of `a|b`"),
    ],
    ids=["escapes", "several"],
)  # fmt: skip
def test_names_that_a_policy_cannot_have_are_errors(text: str, message: str) -> None:
    with pytest.raises(FileError) as raised:
        derived(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "relations",
    [
        "define x: " + "(" * 3000 + "[user]" + " or [user])" * 3000,
        "".join(f"define x{n}: x{n + 1}\n" for n in range(3000)),
    ],
    ids=["parentheses", "relations"],
)
def test_what_is_nested_too_deep_is_an_error(relations: str, tmp_path: Path) -> None:
    model = tmp_path / "model.fga"
    model.write_text(f"model\n  schema 1.1\ntype a\n  relations\n{relations}", encoding="utf-8")
    with pytest.raises(FileError, match="nested too deep"):
        policy_of(model, None, None)


@pytest.mark.parametrize("member", ["[user with in_office]", "[user, employee]", "[user:*]", "[team#member]"])
def test_who_else_is_a_member_of_a_group_is_named(member: str) -> None:
    made = derived(WHOLE.replace("define member: [user, group#member]", f"define member: {member}"))
    assert [each for each in told(made) if "`member` of `group`" in each and "users and groups alone" in each]


@pytest.mark.parametrize(
    "end", ['x == "\\""', "x == 1 // it's", "x == 1 # it's", "x == 'don\\'t {'", "{1: '}'}[1] == x"]
)
def test_a_condition_ends_where_it_ends(end: str) -> None:
    condition = "condition NAME(x: string) {\n  " + end + "\n}\n"
    between = "type note\n  relations\n    define r: [user]\n"
    text = WHOLE + condition.replace("NAME", "a") + between + condition.replace("NAME", "b")
    assert derived(text).text == derived(WHOLE + between).text


def test_a_condition_is_passed_over() -> None:
    text = WHOLE + "condition in_office(at: timestamp) {\n  {1: at}[1] > 0 # as it is\n}\n"
    assert derived(text).text == derived(WHOLE).text


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ("type team", "type any", ["9:6"]),
        (
            "define can_share:",
            "define can_share: anyone\n    define anyone: [user]\n    define third:",
            ["23:12", "24:12"],
        ),
    ],
    ids=["type", "relation"],
)
def test_what_the_policy_refuses_stands_at_its_place_in_the_model(
    old: str, new: str, places: list[str], privtab: Callable[..., Any], tmp_path: Path
) -> None:
    model = tmp_path / "drive.fga"
    model.write_text(WHOLE.replace(old, new), encoding="utf-8")
    done = privtab("import", model)
    err = done.err.replace("\n", "")
    assert done.code == 1
    assert "policy.yaml" not in done.err
    assert "cannot be the name of" in err
    for place in places:
        assert f"{model}:{place}: error: P01" in err


def test_the_command_writes_the_policy_or_says_why_not(privtab: Callable[..., Any], tmp_path: Path) -> None:
    model, policy = tmp_path / "my-drive.fga", tmp_path / "drive.yaml"
    model.write_text(WHOLE, encoding="utf-8")
    done = privtab("import", model, "-o", policy)
    assert "--set parent=parent --set outermost=folder" in done.err
    assert load_program(policy).system == "my_drive"
    policy.unlink()
    model.write_text(WHOLE + "    define x: viewer but not owner\n", encoding="utf-8")
    done = privtab("import", model, "-o", policy)
    assert done.code == 1
    assert f"{model}:25:12: error: `x` of `doc`: `but not`" in done.err.replace("\n", "")
    assert not policy.exists()
    assert privtab("import", model, "-o", policy, "--allow-partial").code == 0
    assert policy.exists()
