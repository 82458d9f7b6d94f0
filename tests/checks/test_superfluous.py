"""Which parts of a row are said to be superfluous is what trying every state says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import small_policies
import worlds

from privtab import model
from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.checks import _superfluous
from privtab.checks._every import catalogue
from privtab.checks._parts import Node, Part
from privtab.checks._superfluous import Superfluous, superfluous
from privtab.checks._view import View, view_of
from privtab.ir.nodes import ALWAYS, RESOURCE, And, Formula, Or, When
from privtab.language import syntax
from privtab.model import nodes as m
from privtab.model.nodes import flat
from privtab.reference.evaluate import EvaluationContext, Reference

Path = tuple[int, ...]
Cells = tuple[m.Condition | None, m.Condition | None]


def superfluous_parts(policy: m.Policy) -> list[Diagnostic]:
    return [found for check in catalogue() if check.kind.code in ("P310", "P328") for found in check.find(policy)]


def cells(row: m.Row) -> Cells:
    return row.requires, row.each


def listed(condition: m.Condition) -> list[m.Condition]:
    """The parts of an `or` or an `and`, parentheses left out."""
    return list(flat(condition, type(condition))) if isinstance(condition, m.AnyOf | m.AllOf) else []


def paths(condition: m.Condition, path: Path) -> Iterator[tuple[Path, str]]:
    """Every part that the catalogue speaks of, and which finding it would be: P310 or P328."""
    match condition:
        case m.AnyOf() | m.AllOf():
            for i, part in enumerate(listed(condition)):
                if part != m.AllOf():
                    yield (*path, i), "P310" if isinstance(condition, m.AnyOf) else "P328"
                yield from paths(part, (*path, i))
        case m.Required(body=body):
            yield from paths(body, (*path, 0))
        case m.HoldsPrivilege(uses=uses, every=every, places=places):
            grid = len(uses) > 1 and len(places) > 1
            for i, use in enumerate(uses if len(uses) > 1 else ()):
                if not any(use.is_set or o.is_set for o in uses if o is not use) or not beside_set(uses, i, every):
                    yield (*path, *([0] if grid else []), i), "P328" if every else "P310"
            for i in range(len(places) if len(places) > 1 else 0):
                yield (*path, *([1] if grid else []), i), "P310"
        case m.Related(places=places) | m.CanDo(places=places) | m.Named(places=places):
            yield from (((*path, i), "P310") for i in range(len(places) if len(places) > 1 else 0))
        case m.IsSelf() | m.IsServiceAdmin() | m.LeftOut():
            return


def beside_set(uses: tuple[m.PrivilegeUse, ...], i: int, every: bool) -> bool:
    """Whether it is the idle one of a set and its member in one term; READ and WRITE are all there is to a set here."""
    other_uses = [o for j, o in enumerate(uses) if j != i]
    return any(o.is_set for o in other_uses) if every else uses[i].is_set


def without(condition: m.Condition, path: Path, removed: frozenset[Path]) -> m.Condition | None:
    """The condition with parts left out; None where nothing would be left of a list that needs something."""
    match condition:
        case m.AnyOf() | m.AllOf():
            parts_left = [
                without(p, (*path, i), removed) for i, p in enumerate(listed(condition)) if (*path, i) not in removed
            ]
            parts = tuple(part for part in parts_left if part is not None)
            if len(parts) < len(parts_left) or (not parts and isinstance(condition, m.AnyOf)):
                return None
            return m.AnyOf(parts) if isinstance(condition, m.AnyOf) else m.AllOf(parts)
        case m.Required(body=body):
            inner = without(body, (*path, 0), removed)
            return None if inner is None else replace(condition, body=inner)
        case m.HoldsPrivilege(uses=uses, every=every, places=places):
            grid = len(uses) > 1 and len(places) > 1
            use_at, place_at = ((*path, 0), (*path, 1)) if grid else (path, path)
            remaining_uses = tuple(u for i, u in enumerate(uses) if len(uses) == 1 or (*use_at, i) not in removed)
            remaining_places = tuple(
                p for i, p in enumerate(places) if len(places) == 1 or (*place_at, i) not in removed
            )
            if not remaining_uses and every:
                return m.AllOf()
            return (
                replace(condition, uses=remaining_uses, places=remaining_places)
                if remaining_uses and remaining_places
                else None
            )
        case m.Related(places=places) | m.CanDo(places=places) | m.Named(places=places):
            remaining_places = tuple(p for i, p in enumerate(places) if len(places) == 1 or (*path, i) not in removed)
            return replace(condition, places=remaining_places) if remaining_places else None
        case m.IsSelf() | m.IsServiceAdmin() | m.LeftOut() | m.Compared():
            return condition


class Enumeration:
    """A row and every state that matters to it: one of each group of states with the same answers to all its parts."""

    def __init__(self, view: View, row: m.Row) -> None:
        self.view = view
        self.row = row
        self.rule = view.rule(row)
        self.contexts: list[EvaluationContext] | None = []
        units = list(dict.fromkeys(_units(self.rule.item_condition)))
        for request in small_policies.requests(view.program, self.rule):
            states = small_policies.states([(view.program, self.rule)], request)
            if states is None:
                self.contexts = None
                return
            known: set[tuple[bool, ...]] = set()
            for state in states:
                context = EvaluationContext(Reference(view.program, small_policies.known(view.program, state)), request)
                answers = tuple(context.holds(unit) for unit in units)
                if answers not in known:
                    known.add(answers)
                    self.contexts.append(context)

    def decisions(self, changed: Cells) -> list[bool]:
        """What is decided in each of them, with other cells."""
        lower = self.view.lowering.formula
        requires, each = (ALWAYS if c is None else lower(c) for c in changed)
        assert self.contexts is not None
        return [
            a.holds(self.rule.gate) and a.holds(requires) and (not _named(a) or a.holds(each)) for a in self.contexts
        ]

    def same(self, removed: frozenset[Path]) -> bool:
        """Whether the row decides the same without some parts; not if nothing is left of something."""
        changed = [None if c is None else without(c, (i,), removed) for i, c in enumerate(cells(self.row))]
        if any(new is None and old is not None for new, old in zip(changed, cells(self.row), strict=True)):
            return False
        return self.decisions((changed[0], changed[1])) == self.decisions(cells(self.row))

    def has_idle_or(self) -> bool:
        """Whether some `or` holds for all who pass the gate."""
        assert self.contexts is not None
        named = [a for a in self.contexts if _named(a)]
        ors = [o for c in cells(self.row) if c is not None for o in _ors(c)]
        return any(
            all(a.holds(f) for a in named if a.holds(self.rule.gate)) for f in map(self.view.lowering.formula, ors)
        )


def _ors(condition: m.Condition) -> Iterator[m.Condition]:
    if isinstance(condition, m.AnyOf):
        yield condition
    for part in (condition.body,) if isinstance(condition, m.Required) else listed(condition):
        yield from _ors(part)


def _units(formula: Formula) -> Iterator[Formula]:
    match formula:
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from _units(part)
        case When(body=body):
            yield from _units(body)
        case unit:
            yield unit


def _named(context: EvaluationContext) -> bool:
    return RESOURCE in context.complete


def verdicts(view: View, row: m.Row, reported: dict[Path, Superfluous]) -> dict[str, int] | None:
    """Check what is reported for a row by enumeration, and count the parts of each kind; None if there are too many states."""
    enumeration = Enumeration(view, row)
    if enumeration.contexts is None or enumeration.has_idle_or():
        return None
    codes = {p: code for i, c in enumerate(cells(row)) if c is not None for p, code in paths(c, (i,))}
    assert reported.keys() <= codes.keys()
    removed = frozenset(reported)
    assert not any(path[:length] in removed for path in removed for length in range(1, len(path))), "one inside another"
    for path in codes:
        alone = enumeration.same(frozenset({path}))
        if path in removed:
            assert alone, f"{path} is needed"
        elif alone and not any(path[:length] in removed for length in range(1, len(path))):
            assert not enumeration.same(removed | {path}), f"{path} is not needed"
    assert enumeration.same(removed), "not all can be dropped together"
    return {code: sum(codes[path] == code for path in removed) for code in ("P310", "P328")}


def compared(seeds: range) -> dict[str, int]:
    """How many findings there were in rows that could be tried, how many rows had none, and how many were passed over."""
    counts = {"P310": 0, "P328": 0, "none": 0, "passed over": 0}
    for seed in seeds:
        tables, _ = syntax.read_policy(SourceFile.of("small.yaml", small_policies.policy(seed, deep=True)))
        policy = None if tables is None else model.resolve(tables)[0]
        assert policy is not None
        view = view_of(policy)
        for row in policy.rows.values():
            reported = {s.path: s for s in superfluous(view) if s.spot.span.line == row.decl.span.line}
            try:
                found = verdicts(view, row, reported)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {row.requires_text}; each: {row.each_text}: {error}") from error
            if found is None:
                counts["passed over"] += 1
                continue
            counts["none"] += not reported
            for code, number in found.items():
                counts[code] += number
        reported_positions = {(d.span.line, d.span.column, d.code) for d in superfluous_parts(policy)}
        assert reported_positions == {
            (s.spot.span.line, s.spot.span.column, "P328" if s.kind == "condition" else "P310")
            for s in superfluous(view)
        }
    return counts


def found(text: str, inheritance: str = "none") -> list[str]:
    """The superfluous parts of a policy with these rows of `shelf`, each as the text from its position on."""
    head = """\
        privtab: 1
        system: demo
        version: "1"
        entities: {shop: {shelf: }}
        privileges: [A, B, C, D]
        semantics: {inheritance: %s, owner: {kinds: [user]}}
        tables: {shelf: {%s}}
        """
    tables, _ = syntax.read_policy(SourceFile.of("demo.yaml", head % (inheritance, text)))
    assert tables is not None
    policy, model_findings = model.resolve(tables)
    assert policy is not None, model_findings
    return [f"{s.kind} {s.spot.cell.text[s.spot.start :]}: {s.why}" for s in superfluous(view_of(policy))]


@pytest.mark.parametrize(
    ("cell", "messages"),
    [
        ("A (shop) and (B (shop) or (C (shop) and A (shop)))", ["condition A (shop))): row"]),
        ("A (shop) or B (shop) and (A (shop) or C (shop))", ["alternative A (shop) or C (shop)): row"]),
        # Of two that could do without each other today's local one is told of, the whole rather than what is inside.
        (
            "(A (shop) or B (shop)) and (A (shop) or C (shop) and B (shop))",
            ["condition A (shop) or B (shop)) and (A (shop) or C (shop) and B (shop)): others"],
        ),
        ("A (shop) or A (shop) and A (shop)", ["alternative A (shop) and A (shop): same"]),
        ("service admin or A (shop) or service admin", ["alternative service admin: twice"]),
        ("A/B (shop) and (C (shop) or A (shop))", []),
        ("A (shop) and A/B (shelf) or A (shop) and B (shelf)", ["alternative A (shop) and B (shelf): less"]),
        ("A (shelf) or A/B (shop, shelf)", ["alternative A (shelf) or A/B (shop, shelf): less"]),
        ("C (shop) and A (shelf) or A/B (shelf)", ["alternative C (shop) and A (shelf) or A/B (shelf): less"]),
        (
            "D (shop) and (A/B (shelf) or C (shop)) or A (shelf)",
            ["privilege A/B (shelf) or C (shop)) or A (shelf): row"],
        ),
        ("A (shop) and (C (shelf) or A + B (shop))", ["condition A + B (shop)): row"]),
        ("owner (shelf) or D (shop) and owner (shop, shelf)", ["object shelf): row"]),
        ("anyone or A (shop) and A (shop)", ["condition A (shop): others"]),
        ("B (shop) and (anyone when strict)", ["condition when strict): always"]),
    ],
)
def test_reported_parts(cell: str, messages: list[str]) -> None:
    assert found(f"open: {cell!r}") == messages


def test_requirements_of_each_row_beside_can() -> None:
    assert found("list: {requires: A (shop), each: B (shelf) or C (shelf) and A (shop)}") == ["condition A (shop): row"]


def test_a_call_for_all_names_no_item() -> None:
    """With inheritance the alternative above is no more than the one below, but only where there is an item."""
    inherited = "list: {requires: A (shop) or A (shelf), each: A (shelf)}"
    assert found(inherited, "down") == []
    assert found("list: {requires: A (shop) or A (shelf)}", "down") == ["alternative A (shop) or A (shelf): less"]


@pytest.mark.slow
def test_superfluous_parts_are_those_found_by_trying() -> None:
    counts = compared(range(7))
    assert min(counts.values()) > 1, counts


def test_objects_of_many_types_are_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(seed: int) -> list[Superfluous]:
        tables, _ = syntax.read_policy(SourceFile.of("small.yaml", small_policies.policy(seed, deep=True)))
        policy = None if tables is None else model.resolve(tables)[0]
        assert policy is not None
        return list(superfluous(View(policy)))

    one_by_one = [found(seed) for seed in range(12)]
    monkeypatch.setattr(_superfluous, "_CHOICES", 0)
    together = [found(seed) for seed in range(12)]
    assert [[(s.path, s.why) for s in parts] for parts in one_by_one] == [
        [(s.path, s.why) for s in parts] for parts in together
    ]
    assert sum(map(len, one_by_one)) > 20


@pytest.mark.long
def test_superfluous_parts_in_many_policies(search_seed: int) -> None:
    assert min(compared(range(search_seed, search_seed + 100)).values()) > 5


@pytest.mark.parametrize("inheritance", ["none", "down"])
def test_findings_without_the_solver_are_those_of_the_solver(monkeypatch: pytest.MonkeyPatch, inheritance: str) -> None:
    rnd = random.Random(7)
    cells = [_short_cell(rnd, 2) for _ in range(120)]
    expected = [found(f"open: {cell!r}", inheritance) for cell in cells]
    decided: list[bool] = []

    absorbed = _superfluous._absorbed

    def undecided(view: View, rows: list[m.Row], roots: list[list[Node]], listed: list[Part]) -> None:
        decided.append(absorbed(view, rows, roots, listed) is not None)

    monkeypatch.setattr(_superfluous, "_absorbed", undecided)
    assert [found(f"open: {cell!r}", inheritance) for cell in cells] == expected
    assert 40 < sum(decided) < len(cells)


def _short_cell(rnd: random.Random, depth: int) -> str:
    if not depth or rnd.random() < 0.4:
        term = rnd.choice(["owner", *"ABCD"])
        return f"{term} ({rnd.choice(['shop', 'shelf', 'shop, shelf'])})"
    join = rnd.choice([" or ", " and "])
    return f"({join.join(_short_cell(rnd, depth - 1) for _ in range(rnd.randint(2, 3)))})"


def test_parts_that_are_equal_without_the_last_name_are_reported() -> None:
    cell = "A (shop) and A/B (shop, shelf) and A/B (shop)"
    reported = found(f"list: {{requires: {cell!r}, each: C (shelf)}}", "down")
    assert reported == found(f"list: {{requires: {cell!r}}}", "down") != []


class Implications:
    """Where types nest: whether a row decides the same without some parts, by exact implication for every number of levels."""

    def __init__(self, view: View, row: m.Row) -> None:
        self.view, self.row, self.rule = view, row, view.rule(row)

    def same(self, removed: frozenset[Path]) -> bool:
        """As `Enumeration.same`."""
        changed = [None if c is None else without(c, (i,), removed) for i, c in enumerate(cells(self.row))]
        if any(new is None and old is not None for new, old in zip(changed, cells(self.row), strict=True)):
            return False
        requires, each = (ALWAYS if c is None else self.view.lowering.formula(c) for c in changed)
        calls = And.of(self.rule.gate, requires), And.of(self.rule.gate, self.rule.requires)
        items = And.of(calls[0], each), self.rule.item_condition
        unnamed = self.rule.entity if self.rule.each is not None and self.row.requires is not None else None
        return self._equal(items, None) and (unnamed is None or self._equal(calls, unnamed))

    def _equal(self, conditions: tuple[Formula, Formula], unnamed: str | None) -> bool:
        return all(
            self.view.exact.always_implies(self.rule, premise, conclusion, unnamed=unnamed)
            for premise, conclusion in (conditions, conditions[::-1])
        )

    def has_idle_or(self) -> bool:
        """As `Enumeration.has_idle_or`."""
        ors = [o for c in cells(self.row) if c is not None for o in _ors(c)]
        lowered = map(self.view.lowering.formula, ors)
        return any(self.view.exact.always_implies(self.rule, self.rule.gate, formula) for formula in lowered)


def nested_rows(seeds: range) -> dict[str, int]:
    """Check rows of worlds in which a type nests, and count the findings."""
    counts = {"P310": 0, "P328": 0, "none": 0}
    for seed in seeds:
        tables, _ = syntax.read_policy(SourceFile.of("world.yaml", worlds.policy(seed, features=("nested", "implies"))))
        policy = None if tables is None else model.resolve(tables)[0]
        assert policy is not None
        view = view_of(policy)
        reported = superfluous(view)
        for row in policy.rows.values():
            implications = Implications(view, row)
            if row.withs or view.undecided_codes.get((row.entity, row.operation)) or implications.has_idle_or():
                continue
            codes = {p: code for i, c in enumerate(cells(row)) if c is not None for p, code in paths(c, (i,))}
            removed = frozenset(s.path for s in reported if s.spot.span.line == row.decl.span.line)
            if "any" in row.decl.span.path or not removed <= codes.keys():
                continue
            assert not removed or implications.same(removed), (seed, row.requires_text, removed)
            for path in codes.keys() - removed:
                inside = any(path[:length] in removed for length in range(1, len(path)))
                if not inside and implications.same(frozenset({path})):
                    assert not implications.same(removed | {path}), (seed, row.requires_text, row.each_text, path)
            for path in removed:
                counts[codes[path]] += 1
            counts["none"] += not removed
    return counts


LEVELS = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: true}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: DENY, owner: {kinds: [user]}}
tables:
  table:
    one: USE (namespace) or USE (any namespace)
    two: USE (every namespace) and USE (first namespace)
    three: USE (first namespace) or USE (namespace)
    four: USE (parent) or USE (namespace)
"""


@pytest.mark.parametrize(
    ("deny", "expected"),
    [
        ("none", [(10, "P310"), (11, "P328"), (12, "P310"), (13, "P310")]),
        ("overrides", [(10, "P310"), (11, "P328")]),
    ],
)
def test_parts_about_levels_of_a_type_are_compared_on_every_level(deny: str, expected: list[tuple[int, str]]) -> None:
    text = LEVELS.replace("DENY", deny).replace("USE (parent)", "USE (catalog)")
    tables, _ = syntax.read_policy(SourceFile.of("lake.yaml", text))
    policy = None if tables is None else model.resolve(tables)[0]
    assert policy is not None
    assert sorted((d.span.line, d.code) for d in superfluous_parts(policy)) == expected


@pytest.mark.slow
def test_rows_of_types_that_nest() -> None:
    counts = nested_rows(range(6))
    assert min(counts.values()) > 3, counts


@pytest.mark.long
def test_rows_of_types_that_nest_in_many_worlds(search_seed: int) -> None:
    nested_rows(range(search_seed, search_seed + 60))
