from __future__ import annotations

from dataclasses import replace

import generated_programs
import pytest

from privtab.base import SourceFile, Worker
from privtab.ir import NEVER
from privtab.pipeline import load_program
from privtab_analysis.diff import Diff, RowChange, Verdict, diff
from privtab_analysis.diff.witness import answer

POLICY = """\
privtab: 1
system: shop
version: "1"
entities:
  store: {shelf: {item: }}
privileges: [READ, WRITE, SHARE]
sets: {BOTH: [READ, WRITE]}
semantics: {inheritance: none, deny: none, owner: {kinds: [user]}}
roles:
  clerk: {scope: store, grants: {item: [READ]}}
tables:
  store:
    open: READ (store)
  shelf:
    open: READ (shelf)
  item:
    read: READ (item) or owner (item)
    write: WRITE (item) and READ (item)
    list: {requires: READ (shelf), each: READ (item)}
    create: {requires: WRITE (shelf), grants: BOTH (item)}
    drop: {requires: WRITE (item), revokes: BOTH (item)}
    move: {with: {to: shelf}, requires: WRITE (item) and WRITE (to)}
    burn: WRITE (item) and (SHARE (item) when really)
    open: can open (shelf) and READ (item)
"""


def compared(*changes: tuple[str, str]) -> Diff:
    """The policy and what becomes of it by replacing texts."""
    text = POLICY
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    sides = (load_program(SourceFile.of(name, part)) for name, part in (("a.yaml", POLICY), ("b.yaml", text)))
    return diff(*sides)


def row(found: Diff, name: str) -> RowChange:
    return next(r for r in found.rows if r.name == name)


def verdicts(found: Diff) -> dict[str, str]:
    """The operations that changed."""
    return {r.name: str(r.verdict) for r in found.changes}


def rows(r: RowChange, shows: str) -> list[str]:
    """The rows of the state that shows it, on one line each."""
    witness = next(w for w in r.witnesses if w.shows == shows)
    return [" ".join(line.values()) for lines in witness.state.values() for line in lines]


def test_a_policy_against_itself() -> None:
    found = compared()
    assert found.same
    assert [r for r in found.rows if not r.is_unchanged] == []
    assert len(found.rows) == 10


def test_fewer_privileges_are_required() -> None:
    found = compared(("WRITE (item) and READ (item)", "WRITE (item)"))
    assert verdicts(found) == {"item/write": "wider"}
    (witness,) = row(found, "item/write").witnesses
    assert (witness.before, witness.after) == ("deny", "allow")
    assert rows(row(found, "item/write"), "wider") == ["user:alice allow WRITE item:store1/shelf1/item1"]
    assert row(found, "item/write").parts == ("requires",)


def test_more_privileges_are_required() -> None:
    found = compared(("read: READ (item) or owner (item)", "read: READ (item)"))
    assert verdicts(found) == {"item/read": "narrower"}
    assert rows(row(found, "item/read"), "narrower") == ["item:store1/shelf1/item1 user:alice"]


def test_another_privilege_is_required() -> None:
    found = compared(("  item:\n    read: READ (item) or", "  item:\n    read: SHARE (item) or"))
    assert verdicts(found) == {"item/read": "incomparable"}
    assert {w.shows for w in row(found, "item/read").witnesses} == {"wider", "narrower"}


def test_other_words_for_the_same() -> None:
    found = compared(("WRITE (item) and READ (item)", "READ (item) and (WRITE (item) or BOTH (item))"))
    assert found.same
    assert [r.name for r in found.rewritten] == ["item/write"]


def test_operations_that_come_and_go() -> None:
    found = compared(("    write: WRITE (item) and READ (item)\n", "    hide: SHARE (shelf)\n"))
    assert verdicts(found) == {"item/write": "removed", "item/hide": "added"}
    assert row(found, "item/write").after is None
    assert row(found, "item/hide").before is None


def test_rows_that_refer_to_a_row_change_with_it() -> None:
    found = compared(("  shelf:\n    open: READ (shelf)", "  shelf:\n    open: READ/WRITE (shelf)"))
    assert verdicts(found) == {"shelf/open": "wider", "item/open": "wider"}
    assert row(found, "item/open").parts == ()
    assert row(found, "item/open").because == ("can open (shelf)",)


def test_the_call_and_the_items_of_a_listing_are_compared_separately() -> None:
    found = compared(("{requires: READ (shelf), each: READ (item)}", "{each: READ (item)}"))
    assert verdicts(found) == {"item/list": "wider"}
    (witness,) = row(found, "item/list").witnesses
    assert str(witness.request.resource) == "item:store1/shelf1", "without the last name"
    assert witness.rows == 0
    narrower = compared(("{requires: READ (shelf), each: READ (item)}", "READ (shelf) and READ (item)"))
    (witness,) = row(narrower, "item/list").witnesses
    assert (witness.before, witness.after) == ("allow", "invalid"), "a call without a name is refused now"


def test_a_flag_with_a_new_requirement_and_a_removed_flag() -> None:
    found = compared(("(SHARE (item) when really)", "READ (item)"))
    assert verdicts(found) == {"item/burn": "incomparable"}
    more = next(w for w in row(found, "item/burn").witnesses if w.shows == "wider")
    less = next(w for w in row(found, "item/burn").witnesses if w.shows == "narrower")
    assert (more.request.flags, less.request.flags) == (frozenset({"really"}), frozenset())


def test_objects_of_the_request() -> None:
    found = compared(("{to: shelf}", "{to: [shelf, store]}"))
    assert verdicts(found) == {"item/move": "wider"}
    (witness,) = row(found, "item/move").witnesses
    assert (witness.before, witness.after) == ("invalid", "allow")
    assert witness.request.with_["to"].type == "store"
    assert verdicts(compared(("{with: {to: shelf}, requires: WRITE (item) and WRITE (to)}", "WRITE (item)"))) == {
        "item/move": "wider"
    }, "who named the object before may name it still: nobody looks at it"
    other = compared(
        ("{to: shelf}, requires: WRITE (item) and WRITE (to)", "{by: shelf}, requires: WRITE (item) and WRITE (by)")
    )
    assert verdicts(other) == {"item/move": "incomparable"}


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ("grants: READ (item)", "narrower"),
        ("grants: READ + WRITE (item)", None),
        ("grants: BOTH (item), becomes: owner", "wider"),
        ("grants: READ + SHARE (item)", "incomparable"),
    ],
)
def test_changed_effects(effects: str, verdict: str | None) -> None:
    found = compared(("grants: BOTH (item)", effects))
    assert verdicts(found) == ({} if verdict is None else {"item/create": verdict})
    changed = row(found, "item/create")
    assert changed.condition is Verdict.EQUAL
    if verdict is not None:
        assert changed.parts == ("effects",)
        (witness,) = changed.witnesses
        assert witness.shows == "effects"
        assert (witness.before, witness.after) == ("allow", "allow")
        assert witness.effects_before != witness.effects_after


def test_condition_and_effects_determine_the_verdict_together() -> None:
    both = compared(
        ("{requires: WRITE (shelf), grants: BOTH (item)}", "{requires: READ/WRITE (shelf), grants: READ (item)}")
    )
    assert verdicts(both) == {"item/create": "incomparable"}
    assert (row(both, "item/create").condition, row(both, "item/create").effects) == (Verdict.WIDER, Verdict.NARROWER)
    less_goes = compared(("revokes: BOTH (item)", "revokes: READ (item)"))
    assert verdicts(less_goes) == {"item/drop": "wider"}


def test_effects_of_impossible_operations_are_no_change() -> None:
    pair = "item", "create"
    sides = []
    for effects in ("BOTH", "READ"):
        program = load_program(
            SourceFile.of("x.yaml", POLICY.replace("grants: BOTH (item)", f"grants: {effects} (item)"))
        )
        sides.append(replace(program, rules={**program.rules, pair: replace(program.rules[pair], requires=NEVER)}))
    found = diff(*sides)
    assert found.same
    assert [r.name for r in found.rewritten] == ["item/create"]


DECLARED: list[tuple[tuple[str, str], str, str, dict[str, str]]] = [
    (
        ("inheritance: none", "inheritance: down"),
        "inheritance",
        "wider",
        {"item/create": "wider", "item/read": "wider"},
    ),
    (("deny: none", "deny: overrides"), "deny", "narrower", {"item/read": "narrower", "store/open": "narrower"}),
    (("kinds: [user]", "kinds: [user, group]"), "owner.kinds", "wider", {"item/read": "wider"}),
    (("kinds: [user]", "kinds: [user], holds: [SHARE]"), "owner.holds", "wider", {"item/burn": "wider"}),
    (
        ("BOTH: [READ, WRITE]", "BOTH: [READ]"),
        "BOTH",
        "changed",
        {"item/write": "narrower", "item/drop": "incomparable"},
    ),
    (("item: [READ]}", "item: [READ, WRITE]}"), "clerk", "wider", {"item/write": "wider", "item/drop": "wider"}),
    (("scope: store, grants", "grants"), "clerk", "wider", {"item/read": "wider"}),
    (("scope: store", "scope: shelf"), "clerk", "changed", {"item/read": "incomparable"}),
    (("[READ, WRITE, SHARE]", "{READ: , WRITE: {on: [shelf, item]}, SHARE: }"), "WRITE", "narrower", {}),
]


@pytest.mark.parametrize(("change", "name", "verdict", "expected"), DECLARED, ids=[f"{d[1]} {d[2]}" for d in DECLARED])
def test_declarations(change: tuple[str, str], name: str, verdict: str, expected: dict[str, str]) -> None:
    found = compared(change)
    (declared,) = found.declared
    assert (declared.name, str(declared.verdict)) == (name, verdict)
    assert expected.items() <= verdicts(found).items()
    assert all(r.because and not r.row_changed for r in found.changes if r.effects is Verdict.EQUAL)


def test_a_gate_is_part_of_every_row() -> None:
    found = compared(("owner: {kinds: [user]}", "owner: {kinds: [user]}, gate: member (store)"))
    assert {str(r.verdict) for r in found.rows} == {"narrower"}
    assert all("gate" in r.parts for r in found.rows)
    assert rows(row(found, "store/open"), "narrower") == ["user:alice allow READ store:store1"]


def test_a_role_that_the_other_side_does_not_declare() -> None:
    found = compared(("  clerk: {scope: store, grants: {item: [READ]}}", "  boss: {grants: {item: [WRITE]}}"))
    assert verdicts(found)["item/read"] == "narrower"
    assert verdicts(found)["item/drop"] == "wider"
    assert rows(row(found, "item/drop"), "wider") == ["user:alice boss"]


def test_words_are_no_change() -> None:
    found = compared(("[READ, WRITE, SHARE]", "{READ: {deprecated: use WRITE}, WRITE: , SHARE: }"))
    assert found.same
    assert [d.meaning for d in found.declared] == [False]


def test_every_witness_of_the_shipped_history_is_small() -> None:
    for before, after in (("initial", "draft"), ("draft", "revised"), ("revised", "final")):
        found = diff(load_program(f"cdap/{before}"), load_program(f"cdap/{after}"))
        assert max(w.rows for r in found.rows for w in r.witnesses) <= 2


@pytest.mark.parametrize(("first", "second", "features"), [(7, 9, ()), (1, 2, ("implies", "hierarchy"))])
def test_a_witness_has_no_row_that_is_not_needed(first: int, second: int, features: tuple[str, ...]) -> None:
    before, after = (generated_programs.program(number, *features) for number in (first, second))
    tried = 0
    for witness in (w for changed in diff(before, after).rows for w in changed.witnesses):
        shown = [answer(program, witness.state, witness.request) for program in (before, after)]
        for table, listed in witness.state.items():
            for at in range(len(listed)):
                fewer = {**witness.state, table: [*listed[:at], *listed[at + 1 :]]}
                assert [answer(program, fewer, witness.request) for program in (before, after)] != shown, witness
                tried += 1
    assert tried


def test_the_last_change_of_the_shipped_history_is_the_listings() -> None:
    found = diff(load_program("cdap/revised"), load_program("cdap/final"))
    listings = {f"{type_}/list" for type_ in ("namespace", "artifact", "application", "program", "stream", "dataset")}
    assert verdicts(found) == dict.fromkeys(listings, "incomparable")


def test_names_are_called_as_the_caller_did() -> None:
    program = load_program("cdap/final")
    found = diff(program, program, shown=("this", "that"))
    assert (found.before.shown, found.after.shown) == ("this", "that")
    assert (found.before.system, found.before.version) == ("cdap", "final")


def test_a_comparison_says_the_same_twice() -> None:
    once, again = (diff(load_program("cdap/initial"), load_program("cdap/final")) for _ in range(2))
    assert once == again


def test_children_take_their_share_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = diff(load_program("cdap/initial"), load_program("cdap/draft"))
    monkeypatch.setattr("privtab_analysis.diff.MIN_PAIRS_PER_PROCESS", 10)
    monkeypatch.setattr("privtab.base.worker.Worker.spare", lambda: 2)
    assert diff(load_program("cdap/initial"), load_program("cdap/draft")) == alone


def test_a_failure_in_a_worker_process_is_raised_here() -> None:
    def work() -> int:
        raise LookupError("told once")

    with pytest.raises(LookupError, match="told once"):
        Worker.start(work).result()
    assert Worker.start(lambda: 7).result() == 7


def test_a_new_set_widens_nothing_and_a_removed_one_narrows_grants_of_it() -> None:
    more = POLICY.replace("sets: {BOTH: [READ, WRITE]}", "sets: {BOTH: [READ, WRITE], EVERY: [READ, WRITE, SHARE]}")
    few, many = (load_program(SourceFile.of(name, text)) for name, text in (("a.yaml", POLICY), ("b.yaml", more)))
    added, gone = diff(few, many), diff(many, few)
    assert verdicts(added) == {}
    assert [(d.kind, d.name) for d in added.declared] == [("set", "EVERY")]
    assert verdicts(gone)["store/open"] == "narrower"
    assert rows(row(gone, "store/open"), "narrower") == ["user:alice allow EVERY store:store1"]


def test_a_declaration_that_gates_rely_on_is_shown_and_gives_nobody_more() -> None:
    found = compared(("revokes: BOTH (item)}", "revokes: BOTH (item), destructive: true}"))
    assert (row(found, "item/drop").verdict, row(found, "item/drop").parts) == ("equal", ("sensitive",))
    assert not row(found, "item/drop").is_unchanged


@pytest.mark.parametrize("groups", ["state", "request"])
def test_who_holds_a_role_by_a_group_alone_is_shown(groups: str) -> None:
    """Where roles are not assigned to users, and grants are to roles."""
    head = f"""\
privtab: 1
system: s
version: "1"
semantics: {{inheritance: down, grantees: [role], assignees: [group], groups: [{groups}], hierarchy: [roles]}}
entities: {{top: {{item: , role: }}}}
privileges: {{READ: {{on: [top, item]}}, WRITE: {{on: [top, item]}}}}
tables:
"""
    before, after = (
        load_program(SourceFile.of("p.yaml", head + listed))
        for listed in (
            "  item: {look: READ (item)}\n  role: {see: holds (role)}\n",
            "  item: {look: READ/WRITE (item)}\n  role: {see: READ (top)}\n",
        )
    )
    found = {row.operation: row for row in diff(before, after).rows}
    assert found["look"].verdict is Verdict.WIDER
    assert found["see"].verdict is Verdict.INCOMPARABLE
    witnesses = [*found["look"].witnesses, *found["see"].witnesses]
    assert len(witnesses) == 3
    assert {row["principal"].partition(":")[0] for one in witnesses for row in one.state["assignments"]} == {"group"}


@pytest.mark.parametrize("assignees", ["", ", assignees: [user]", ", assignees: [group]"])
@pytest.mark.parametrize("groups", ["state", "request"])
@pytest.mark.parametrize("grantees", ["group", "user", "role"])
def test_witnesses_have_only_rows_that_the_policy_takes(grantees: str, groups: str, assignees: str) -> None:
    """A diff replays each witness with the reference, which refuses grants and assignments to others."""
    semantics = f"{{inheritance: down, deny: overrides, grantees: [{grantees}]{assignees}, groups: [{groups}]}}"
    before, after = (
        load_program(
            SourceFile.of(
                "p.yaml",
                f"""\
privtab: 1
system: s
version: "1"
semantics: {semantics}
entities: {{top: {{item: , role: }}}}
privileges: {{READ: {{on: [top, item]}}, WRITE: {{on: [top, item]}}}}
tables:
  item: {{look: {look}, see: {see}}}
  role: {{use: {use}}}
""",
            )
        )
        for look, see, use in (
            ("READ (item)", "READ (item)", "holds (role)"),
            ("READ/WRITE (item)", "READ (item) and WRITE (top)", "READ (top)"),
        )
    )
    verdicts = {row.operation: row.verdict for row in diff(before, after).rows}
    assert verdicts == {"look": Verdict.WIDER, "see": Verdict.NARROWER, "use": Verdict.INCOMPARABLE}
