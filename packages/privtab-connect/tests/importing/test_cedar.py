"""Schemas and policies of Cedar: what the policy of them allows is what Cedar allows, as it was recorded."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from privtab.base import Entity, FileError, Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_connect.models import cedar, fga
from privtab_connect.models.reading import policy_of

SCHEMA = """\
type Acl = { viewers: Set<Team>, editors?: Team }; // shared
entity User in [Team];
entity Team in [Team];
entity Project = { owner: User, "viewers": Set<Team>, managers: Team, acl?: Acl };
entity BugReport in [Project] = { project: Project, reporter: User, watchers: Set<User>, votes: Long };
action "view", "edit" appliesTo { principal: [User], resource: [Project, BugReport] };
action close in [changes] appliesTo { principal: User, resource: BugReport, context: { at: Long } };
action changes;
action archive appliesTo { principal: [User], resource: [Project] };
"""
POLICIES = """\
permit (principal, action, resource is Project) when { resource.owner == principal };
permit (principal, action == Action::"view", resource is Project) when { principal in resource.viewers || principal in resource.managers };
permit (principal is User, action in [Action::"view", Action::"edit"], resource is BugReport) when {
  principal in resource.project.viewers && (principal == resource.reporter || resource.watchers.contains(principal))
};
permit (principal, action in Action::"changes", resource) when { resource is BugReport && principal in resource.project.managers };
permit (principal, action == Action::"archive", resource) when { false };
"""
USERS, TEAMS, PROJECTS, BUGS = ("ann", "bob", "cy"), ("hr", "it", "all"), ("p1", "p2"), ("b1", "b2", "b3")
ACTIONS = {"Project": ("view", "edit", "archive"), "BugReport": ("view", "edit", "close")}
RECORDED: Mapping[int, str] = {
    0: "3ad5801c0007",
    1: "3fe000000e00",
    2: "2a8150000000",
    3: "2af580024ed8",
    4: "3521a8024803",
    5: "3d6b87e00e07",
    6: "387e001c0000",
    7: "3ad406de4000",
    8: "3520a8000400",
    9: "2854ac900600",
    10: "387e049c0000",
    11: "3fe184924927",
}
"""What Cedar 4 decides, by seed: the answers to `questions` in their order, behind a 1, as hexadecimal digits.

`cedarpy.is_authorized(request, POLICIES, entities(world(seed)))` of cedarpy 4 gives them, with the action `close` in `changes`.
"""


def world(seed: int) -> dict[str, Any]:
    """Teams of users and of teams, the attributes of projects, and those of bugs."""
    dice = random.Random(seed)

    def some(of: Sequence[str], most: int) -> list[str]:
        return dice.sample(of, dice.randrange(most + 1))

    return {
        "teams": {user: some(TEAMS, 2) for user in USERS} | {"hr": some(["all"], 1), "it": some(["all"], 1), "all": []},
        "projects": {
            name: {"owner": dice.choice(USERS), "viewers": some(TEAMS, 2), "managers": dice.choice(TEAMS)}
            for name in PROJECTS
        },
        "bugs": {
            name: {"project": dice.choice(PROJECTS), "reporter": dice.choice(USERS), "watchers": some(USERS, 2)}
            for name in BUGS
        },
    }


def entities(made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A world as Cedar reads it."""

    def reference(kind: str, name: str) -> dict[str, Any]:
        return {"__entity": {"type": kind, "id": name}}

    found = [
        {
            "uid": {"type": "User" if name in USERS else "Team", "id": name},
            "attrs": {},
            "parents": [{"type": "Team", "id": team} for team in teams],
        }
        for name, teams in made["teams"].items()
    ]
    for name, project in made["projects"].items():
        attributes: dict[str, Any] = {
            "owner": reference("User", project["owner"]),
            "viewers": [reference("Team", team) for team in project["viewers"]],
            "managers": reference("Team", project["managers"]),
        }
        found.append({"uid": {"type": "Project", "id": name}, "attrs": attributes, "parents": []})
    for name, bug in made["bugs"].items():
        attributes = {
            "project": reference("Project", bug["project"]),
            "reporter": reference("User", bug["reporter"]),
            "watchers": [reference("User", user) for user in bug["watchers"]],
            "votes": 1,
        }
        parents = [{"type": "Project", "id": bug["project"]}]
        found.append({"uid": {"type": "BugReport", "id": name}, "attrs": attributes, "parents": parents})
    return found


def state(made: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """A world as the rows of a state."""
    rows: dict[str, list[dict[str, str]]] = {"memberships": [], "grants": [], "owners": [], "entities": []}
    for name, teams in made["teams"].items():
        member = name if name in USERS else f"group:{name}"
        rows["memberships"] += [{"user": member, "group": team} for team in teams]

    def grant(principal: str, privilege: str, entity: str) -> None:
        rows["grants"].append({"grantee": principal, "effect": "allow", "privilege": privilege, "entity": entity})

    for name, project in made["projects"].items():
        rows["owners"].append({"entity": f"project:{name}", "owner": f"user:{project['owner']}"})
        for team in project["viewers"]:
            grant(f"group:{team}", "viewers", f"project:{name}")
        grant(f"group:{project['managers']}", "managers", f"project:{name}")
    for name, bug in made["bugs"].items():
        rows["entities"].append({"entity": f"bug_report:{name}", "parent": f"project:{bug['project']}"})
        grant(f"user:{bug['reporter']}", "reporter", f"bug_report:{name}")
        for user in bug["watchers"]:
            grant(f"user:{user}", "watchers", f"bug_report:{name}")
    return rows


def questions() -> Iterator[tuple[str, str, str, str]]:
    """User, action, type and name of the resource."""
    for kind, names in (("Project", PROJECTS), ("BugReport", BUGS)):
        yield from ((user, action, kind, name) for user in USERS for action in ACTIONS[kind] for name in names)


def derived(schema: str, policies: str) -> tuple[fga.Derived, list[str]]:
    made = cedar.read(schema, policies, ("app.cedarschema", "app.cedar"))
    found = fga.Derived(made.model, "app", "app.cedarschema", made.operations)
    return found, [str(unsaid) for unsaid in (*made.unsaid, *found.unsaid)]


def program(schema: str = SCHEMA, policies: str = POLICIES) -> tuple[Program, list[str]]:
    found, unsaid = derived(schema, policies)
    return load_program(SourceFile.of("policy.yaml", found.text)), unsaid


def answers(seed: int) -> str:
    """What the policy allows, in the form of `RECORDED`."""
    table, unsaid = program()
    assert unsaid == []
    made, findings = validate(table, from_tables(state(world(seed)), "world"))
    assert [finding for finding in findings if finding.severity == "error"] == []
    reference = Reference(table, made)
    kinds = {"Project": "project", "BugReport": "bug_report"}
    bits = "".join(
        str(int(reference.decide(Request(user=user, action=action, resource=Entity(kinds[kind], name))).allowed))
        for user, action, kind, name in questions()
    )
    return f"{int('1' + bits, 2):x}"


@pytest.mark.parametrize("seed", RECORDED)
def test_the_policy_allows_what_cedar_allows(seed: int) -> None:
    assert answers(seed) == RECORDED[seed]


UNSAID = [
    # a policy | what is told of it
    ('forbid (principal, action == Action::"edit", resource is Project);', "`policy0` for `edit` of `Project`: a table says what is allowed alone: nobody may do it"),
    ("permit (principal, action == Action::\"close\", resource) unless { resource.votes > 3 };", "`policy0` for `close` of `BugReport`: `unless`: a table has no negation"),
    ("permit (principal, action == Action::\"close\", resource) when { resource.votes > 3 };", "`resource.votes > 3`: a condition that a table cannot say"),
    ("permit (principal, action == Action::\"close\", resource) when { !(principal in resource.watchers) };", "`!(principal in resource.watchers)`: a condition that a table cannot say"),
    ("permit (principal in Team::\"hr\", action == Action::\"close\", resource);", "it names one principal: a row of a state can"),
    ("permit (principal, action == Action::\"archive\", resource == Project::\"p1\");", "it names one resource: a row of a state can"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal in principal.teams };", "`principal in principal.teams`: a condition that a table cannot say"),
    ("permit (principal, action == Action::\"close\", resource) when { resource has votes && principal in resource.watchers };", "`has votes`: nothing else asks for the attribute"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal == resource.managers };", "`managers` is not of the principal's type"),
    ("permit (principal, action == Action::\"archive\", resource) when { resource.viewers.contains(principal) };", "`viewers` is not of the principal's type"),
    ("permit (principal, action == Action::\"archive\", resource) when { if true then true else false };", "`if true then true else false`: a condition that a table cannot say"),
    ("permit (principal == ?principal, action == Action::\"archive\", resource);", "its only slot is `?principal`"),
    ("@id(\"viewers\") permit (principal == ?principal, action == Action::\"archive\", resource == ?resource);", "`viewers` is a policy with slots, and an action or an attribute"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal in resource.acl };", "`resource.acl`: no attribute of the resource"),
    ("permit (principal, action == Action::\"archive\", resource) when { resource is Other };", "`is Other`: no type of the schema"),
    ("permit (principal, action == Action::\"archive\", resource) when { resource.acl is Acl };", "`is Acl`: no type of the schema, or not of the resource"),
    ("permit (principal, action == Action::\"archive\", resource) when { && };", "`&&`: a condition that a table cannot say"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal in resource.viewers && { a: { b: \"}\\\"\" } }.a == 1 }; // }", "`principal in resource.viewers && { a: { b: \"}\\\"\" } }.a == 1`: a condition that a table cannot say"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal in resource.viewers.managers.viewers };", "`resource.viewers.managers.viewers`: no attribute"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal.in(resource.viewers) };", "`principal.in(resource.viewers)`: a condition that a table cannot say"),
    ("permit (principal, action == Action::\"archive\", resource) when { principal in resource.acl.viewers };", "`resource.acl.viewers`: no attribute of the resource"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "told"), UNSAID, ids=[told[:40] for _, told in UNSAID])
def test_what_a_table_cannot_say_is_named_and_allows_nothing(policy: str, told: str) -> None:
    allowed = 'permit (principal, action == Action::"edit", resource is Project) when { principal == resource.owner };'
    table, unsaid = program(policies=f"{policy}\n{allowed}")
    (found,) = unsaid
    assert found.startswith("app.cedar:1:")
    assert told in found
    expected = "nobody" if policy.startswith("forbid") else "owner (project)"
    text = derived(SCHEMA, f"{policy}\n{allowed}")[0].text
    assert f'    edit: "{expected}"' in text
    assert '    close: "nobody"' in text
    assert '    archive: "nobody"' in text
    assert ("project", "archive") in table.rules


@pytest.mark.parametrize(("schema", "policies", "what"), [("{}", POLICIES, "schema"), (SCHEMA, " {}", "policy")])
def test_json_is_refused_with_the_tool_that_writes_the_language(schema: str, policies: str, what: str) -> None:
    with pytest.raises(FileError, match=f"`cedar translate-{what} --direction json-to-cedar` writes it in Cedar"):
        derived(schema, policies)


@pytest.mark.parametrize("group", ["changes", '"changes"', 'Action::"changes"', '[Action::"changes", archive]'])
def test_a_group_of_actions_is_named_by_word_or_entity(group: str) -> None:
    schema = SCHEMA.replace("in [changes]", f"in {group}")
    assert derived(schema, POLICIES)[0].text == derived(SCHEMA, POLICIES)[0].text


def test_a_common_type_may_stand_behind_its_use() -> None:
    first, *rest = SCHEMA.splitlines()
    schema = "\n".join([*rest, first]).replace("acl?: Acl", "acl?: Acl, more: Friends") + "\ntype Friends = Set<User>;"
    close = 'permit (principal, action == Action::"archive", resource) when { principal in resource.more };'
    found, unsaid = derived(schema, close)
    assert (unsaid, '    archive: "more (project)"' in found.text) == ([], True)


def test_groups_of_actions_are_all_their_actions_and_are_none_themselves() -> None:
    schema = SCHEMA.replace("action changes;", "action changes in [everything]; action everything;")
    close = 'permit (principal, action == Action::"close", resource);'
    for scope, allowed in (("in", "anyone"), ("==", "nobody")):
        found, unsaid = derived(schema, f'permit (principal, action {scope} Action::"everything", resource);')
        assert (unsaid, f'    close: "{allowed}"' in found.text) == ([], True)
    forbidden = 'forbid (principal, action in Action::"everything", resource);'
    assert '    close: "nobody"' in derived(schema, f"{close} {forbidden}")[0].text


def test_names_have_their_namespace() -> None:
    namespaced = re.sub(r"\bAction::", "Shop::Action::", POLICIES)
    namespaced = re.sub(r"\bis (User|Project|BugReport)", r"is Shop::\1", namespaced)
    assert derived(f"namespace Shop {{ {SCHEMA} }}", namespaced)[0].text == derived(SCHEMA, POLICIES)[0].text
    assert '    view: "nobody"' in derived(SCHEMA, 'permit (principal, action == User::"view", resource);')[0].text


def test_what_one_type_of_users_may_do_is_not_for_the_others() -> None:
    schema = SCHEMA.replace("entity Team", "entity Robot in [Team];\nentity Team") + (
        "action count appliesTo { principal: Robot, resource: Project };\n"
    )
    found, unsaid = derived(schema, 'permit (principal, action == Action::"count", resource);')
    assert '    count: "nobody"' in found.text
    assert ["nobody of `User` may, and they are users, too" in each for each in unsaid] == [True]


def test_a_group_that_asks_is_not_all_its_members() -> None:
    schema = SCHEMA.replace(
        "action archive appliesTo { principal: [User]", "action archive appliesTo { principal: [User, Team]"
    )
    for condition in ("principal == resource.managers", "resource.viewers.contains(principal)"):
        found, unsaid = derived(
            schema, f'permit (principal, action == Action::"archive", resource) when {{ {condition} }};'
        )
        assert '    archive: "nobody"' in found.text
        assert ["is not of the principal's type" in each for each in unsaid] == [True]


def test_what_is_held_on_two_entities_of_a_type_is_one_of_them() -> None:
    schema = SCHEMA.replace("reporter: User", "reporter: User, copied: Project")
    policies = """permit (principal, action == Action::"view", resource is BugReport) when { principal == resource.project.owner };
    permit (principal, action == Action::"edit", resource is BugReport) when { principal == resource.copied.owner };"""
    found, unsaid = derived(schema, policies)
    table = found.text.partition("  bug_report:\n")[2].partition("tables:")[2]
    assert '    view: "owner (project)"' in table
    assert '    edit: "owner (project)"' not in table
    assert any("a second place in a project" in each for each in unsaid)


def test_a_policy_with_slots_is_a_privilege_on_what_the_resource_lies_in_too() -> None:
    policies = """
    @id("reader") permit (principal in ?principal, action == Action::"view", resource in ?resource);
    @id("editor") permit (principal in ?principal, action == Action::"edit", resource is BugReport in ?resource);
    @id("closer") permit (principal == ?principal, action == Action::"close", resource == ?resource);
    permit (principal, action == Action::"archive", resource) when { true };
    """
    found, unsaid = derived(SCHEMA, policies)
    assert unsaid == []
    assert '    view: "reader (bug_report) or reader (project)"' in found.text
    assert '    edit: "editor (bug_report) or editor (project)"' in found.text
    assert '    close: "closer (bug_report)"' in found.text
    assert '    archive: "anyone"' in found.text
    assert (
        "  reader: {on: [bug_report, project]}" in found.text or "  reader: {on: [project, bug_report]}" in found.text
    )


@pytest.mark.parametrize(
    ("schema", "policies", "message"),
    [
        (SCHEMA + "namespace Other { entity Project; }", POLICIES, "app.cedarschema:10:26: two types are called `Project`"),
        (SCHEMA + "entity Bug_Report, Group;", POLICIES, "app.cedarschema:10:8: two types are called `bug_report`\napp.cedarschema:10:20: two types are called `group`"),
        (SCHEMA.replace("entity User", "entiti User"), POLICIES, "app.cedarschema:2:1: expected `@` or `action` or `entity` or `namespace` or `type` or the end, not `entiti`"),
        (SCHEMA, POLICIES.replace("permit", "allow", 1), "app.cedar:1:1: expected `@` or `permit` or `forbid` or the end, not `allow`"),
        (SCHEMA, "permit (principal, resource, action);", "app.cedar:1:20: expected `action`, not `resource`"),
        (SCHEMA + "namespace Other { action close; }", POLICIES, "app.cedarschema:10:26: two actions are called `close`"),
        (SCHEMA, "permit (principal, action, resource", "app.cedar:1:36: expected `)` or `,` or `==` or `in` or `is`, not the end"),
        (SCHEMA, 'forbid (principal, action != Action::"view", resource);', "app.cedar:1:27: expected `,` or `==` or `in`, not `!=`"),
        (SCHEMA, "permit (principal, action in resource, resource);", "app.cedar:1:38: expected `::`, not `,`"),
        (SCHEMA, 'permit (principal == ?resource, action, resource);', "app.cedar:1:22: the schema has no `?resource` here"),
        (SCHEMA, r'permit (principal == User::"a\qb", action, resource);', "app.cedar:1:28: `\"` cannot stand here"),
        (SCHEMA, r'@id("\u{d800}") permit (principal, action, resource);', "app.cedar:1:5: `\"` cannot stand here"),
        (SCHEMA, 'permit (principal, action == Other::Action::"view", resource);', "app.cedar:1:37: the schema has no `Other::Action::view`"),
        (SCHEMA, 'permit (principal, action == Action::"viev", resource);', "app.cedar:1:30: the schema has no `Action::viev`"),
        (SCHEMA, "permit (principal, action, resource is Other::Project);", "app.cedar:1:47: the schema has no `Other::Project`"),
        (f"namespace Shop {{ {SCHEMA} }}", 'forbid (principal, action == Action::"view", resource);', "app.cedar:1:30: the schema has no `Action::view`"),
        ('entity User, Doc; action "1" appliesTo { principal: User, resource: Doc };', POLICIES[:0], "`1` of `doc` cannot be a name in a policy"),
        (SCHEMA, '@id("a-b") permit (principal, action, resource); @id("a_b") permit (principal, action, resource);', "app.cedar:1:61: two policies are called `a_b`"),
        (SCHEMA + 'action "view-it", view_it appliesTo { principal: User, resource: Project };', POLICIES, "app.cedarschema:10:19: two actions are called `view_it`"),
        (SCHEMA + "namespace Other { type Acl = Long; }", POLICIES, "app.cedarschema:10:24: two types are called `Acl`"),
        (SCHEMA + "namespace Other { type Team = User; }", POLICIES, "two types are called `Team`"),
    ],
)  # fmt: skip
def test_what_is_no_cedar_is_refused_at_its_place(schema: str, policies: str, message: str) -> None:
    with pytest.raises(FileError, match=re.escape(message)):
        derived(schema, policies)


def test_what_the_policy_refuses_stands_at_its_place_in_the_schema(privtab: Any, tmp_path: Path) -> None:
    schema, policies = tmp_path / "app.cedarschema", tmp_path / "app.cedar"
    more = "entity Any;\naction _in appliesTo { principal: User, resource: Any };\n"
    schema.write_text(SCHEMA + more, encoding="utf-8")
    policies.write_text(POLICIES, encoding="utf-8")
    done = privtab("import", schema, policies)
    err = done.err.replace("\n", "")
    assert done.code == 1
    assert [f"{schema}:{place}: error: P0" in err for place in ("10:8", "11:8")] == [True, True], done.err


def test_conditions_nested_too_deep_are_an_error(tmp_path: Path) -> None:
    schema, policies = tmp_path / "app.cedarschema", tmp_path / "app.cedar"
    schema.write_text(SCHEMA, encoding="utf-8")
    nested = "true && (false || (" * 2000 + "true" + "))" * 2000
    policies.write_text(f"permit (principal, action, resource) when {{ {nested} }};", encoding="utf-8")
    with pytest.raises(FileError, match="nested too deep"):
        policy_of(schema, policies, None)


def test_the_command_writes_the_policy_or_says_why_not(privtab: Any, tmp_path: Path) -> None:
    schema, policies, policy = tmp_path / "app.cedarschema", tmp_path / "app.cedar", tmp_path / "app.yaml"
    schema.write_text(SCHEMA, encoding="utf-8")
    policies.write_text(POLICIES, encoding="utf-8")
    assert privtab("import", schema, policies, "-o", policy).code == 0
    assert policy.read_text(encoding="utf-8") == derived(SCHEMA, POLICIES)[0].text
    policies.write_text(POLICIES + "forbid (principal, action, resource);", encoding="utf-8")
    policy.unlink()
    done = privtab("import", schema, policies, "-o", policy)
    assert (done.code, policy.exists()) == (1, False)
    assert "nobody may do it" in done.err
    assert privtab("import", schema, policies, "-o", policy, "--allow-partial").code == 0
