"""Plans a conformance test: from a program to few questions, and to one world that they share."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from operator import and_
from typing import assert_never

from privtab.conform.candidates import Candidate, Candidates, Setting
from privtab.conform.choose import Choice, Packing, Row, bits
from privtab.conform.neighbours import extended
from privtab.conform.nodes import Question, QuestionPlan
from privtab.conform.steps import ALL_ABILITIES, Abilities
from privtab.errors import Undecided
from privtab.ir.formula import item_condition, leaves
from privtab.ir.names import PrivilegeNames, privilege_names
from privtab.ir.nodes import (
    RESOURCE,
    Atom,
    Compare,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    Term,
)
from privtab.ir.serialise import vocabulary
from privtab.reference.evaluate import EvaluationContext, Reference, fulfilled
from privtab.request import Entity, Request
from privtab.scenarios.compared import Values, about_entity
from privtab.scenarios.coverage import Cell
from privtab.scenarios.masks import Key, Mask, RowMasks, RuleDependencies
from privtab.scenarios.mutants import UNSEEN, Mutants
from privtab.scenarios.ways import AtomKind, HeldAtom
from privtab.state.nodes import AttributeRow, State

PREFIX = "privtab_conform_"
"""What every name begins with that a test makes in a system."""
NOT_ASKED = "the driver cannot ask this operation"
NO_ATTRIBUTES = "it compares attributes, which the driver cannot give"
SHARED_ATTRIBUTES = "it compares attributes of `{}`, which all requests share"
Readings = Mapping[Key, Mapping[str, Rule]]
"""The other readings of ambiguous rows, by name."""


def plan(
    program: Program,
    *,
    readings: Readings | None = None,
    rows: Callable[[Rule], bool] = lambda _: True,
    asks: Callable[[Rule], bool] = lambda _: True,
    changes: Callable[[Rule], bool] = lambda _: False,
    attributes: bool = True,
    through_roles: bool = True,
    prefix: str = PREFIX,
    marked: bool = False,
    separate: bool = False,
    abilities: Abilities | None = ALL_ABILITIES,
) -> QuestionPlan:
    """Plan the questions for the rows that `rows` selects.

    `readings`: other readings of ambiguous rows. `asks`: whether an operation can be asked; nothing is made for others.
    `attributes`: whether users, entities and requests can be given attributes. `through_roles`: whether some callers hold their privileges through roles. `changes`: whether asking an operation may change the system; such questions
    come last, each about an entity of its own. `marked`: the names of callers contain a digest of the plan, so that a state of
    another plan has none of them. `separate`: ask more, so that the answers tell the faults of a row apart. `abilities`: what the driver
    can make for the questions by which kinds of mistakes are seen; None: ask none of these.
    """
    source = Candidates(program, through_roles=through_roles)
    mutants = Mutants(program, RuleDependencies(program))
    undecided: dict[str, str] = {}
    settings: dict[Key, tuple[Setting, ...]] = {}
    candidates: dict[Key, tuple[Candidate, ...]] = {}
    for key, rule in program.rules.items():
        if rows(rule) and not asks(rule):
            undecided[rule.id] = NOT_ASKED
        elif rows(rule) and (problem := _not_given(program, rule, attributes=attributes)) is not None:
            undecided[rule.id] = problem
        elif rows(rule):
            try:
                settings[key] = tuple(source.settings(rule))
                candidates[key] = tuple(_candidates(source, settings[key], (readings or {}).get(key, {}).values()))
                if separate:
                    changed = [mutant.rule for mutant in mutants.of(rule) if mutant.change not in UNSEEN]
                    candidates[key] += tuple(source.changed(settings[key], changed))
            except Undecided as error:
                undecided[rule.id] = str(error)
            else:
                if not candidates[key]:
                    undecided[rule.id] = "its conditions are about objects that a caller cannot be given"
    choice = Choice(
        program,
        {
            key: Row(
                rule=program.rules[key],
                settings=settings[key],
                candidates=row,
                observed=ObservedCandidates(program, program.rules[key], row),
                readings=(readings or {}).get(key, {}),
            )
            for key, row in candidates.items()
            if row
        },
        separate=separate,
    )
    packed = _packed(program, choice, undecided, changes, prefix, marked=marked)
    if abilities is not None:
        packed = extended(packed, abilities=abilities, changes=changes, readings=readings or {}, prefix=prefix)
    return _identified(packed)


def _not_given(program: Program, rule: Rule, *, attributes: bool) -> str | None:
    """Why a row is not asked about, if it compares attributes that cannot be given to one caller alone."""
    compares = [leaf for leaf in leaves(program, item_condition(rule)) if isinstance(leaf, Compare)]
    if compares and not attributes:
        return NO_ATTRIBUTES
    shared = program.shared_root
    if shared is not None and any(target.type == shared for compare in compares for target in compare.targets):
        return SHARED_ATTRIBUTES.format(shared)
    return None


def _candidates(source: Candidates, settings: Iterable[Setting], readings: Iterable[Rule]) -> Iterator[Candidate]:
    others = tuple(readings)
    for setting in settings:
        yield from source.of(setting)
        for reading in others:
            read = source.reading(setting, reading)
            for candidate in () if read is None else source.of(read):
                yield replace(candidate, setting=setting, purpose="")


def _packed(
    program: Program,
    choice: Choice,
    undecided: Mapping[str, str],
    changes: Callable[[Rule], bool],
    prefix: str,
    *,
    marked: bool,
) -> QuestionPlan:
    """The chosen candidates as questions: those that may change something come last."""
    chosen = choice.chosen()
    cells: list[Cell] = []
    packing = Packing(program, choice.asked_rules(), prefix, _mark(choice, chosen) if marked else "")
    drafts: list[tuple[bool, Key, int, Request, tuple[int, ...]]] = []
    for key, positions in chosen.items():
        rule = choice.rows[key].rule
        may_change = changes(rule)
        proofs = _proofs(choice, key, len(cells), positions)
        cells += [cell for cell, _ in choice.cells[key]]
        for position in positions:
            candidate = choice.rows[key].candidates[position]
            request = packing.request(
                candidate.caller,
                candidate.setting.request,
                rule,
                own=may_change,
                through_roles=candidate.through_roles,
            )
            drafts.append((may_change, key, position, request, tuple(proofs[position])))
    drafts.sort(key=lambda draft: draft[0])
    world = packing.world([request for _, _, _, request, _ in drafts])
    reference = Reference(program, world.state)
    rows_of = _RowsOfUsers(program, world.state)
    numbers: defaultdict[Key, int] = defaultdict(int)
    questions: list[Question] = []
    for _, key, position, request, proved in drafts:
        row = choice.rows[key]
        numbers[key] += 1
        context = EvaluationContext(reference, request)
        expected = context.holds(context.condition(row.rule))
        questions.append(
            Question(
                id=f"{row.rule.entity}/{row.rule.operation}#{numbers[key]}",
                rule=row.rule,
                request=request,
                expected=expected,
                holds=row.candidates[position].caller.words,
                state=rows_of.of(request),
                cells=proved,
                readings={name: not expected for name, mask in choice.readings[key].items() if mask >> position & 1},
                purpose=row.candidates[position].purpose,
                named=row.candidates[position].setting.form != "call",
            )
        )
    return QuestionPlan(
        program=program,
        cells=tuple(cells),
        questions=tuple(questions),
        world=world,
        undecided=undecided,
        digest="",
    )


def _identified(found: QuestionPlan) -> QuestionPlan:
    content = [[question.id, question.request.to_json(), question.expected] for question in found.questions]
    return replace(found, digest=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16])


def _proofs(choice: Choice, key: Key, first: int, positions: Iterable[int]) -> defaultdict[int, list[int]]:
    """For each chosen candidate of a row, the cells that it proves; `first`: the position of the row's first cell."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    taken = sum(1 << position for position in positions)
    for number, (_, mask) in enumerate(choice.cells[key], start=first):
        for position in bits(mask & taken):
            found[position].append(number)
    return found


def _mark(choice: Choice, chosen: Mapping[Key, tuple[int, ...]]) -> str:
    """A short digest of the chosen candidates."""
    content = [
        [candidate.setting.request.to_json(), candidate.caller.words, candidate.through_roles]
        for key, positions in chosen.items()
        for candidate in map(choice.rows[key].candidates.__getitem__, positions)
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6] + "_"


class _RowsOfUsers:
    """The rows of a state about one request: of its user, of groups and roles that only they have, and attributes of its entities."""

    def __init__(self, program: Program, state: State) -> None:
        self._keys = vocabulary(program).keys
        self._of_entities: defaultdict[str, list[AttributeRow]] = defaultdict(list)
        self._tables: dict[str, dict[str, list[object]]] = {}
        holders: dict[str, str] = {}
        for user, group in state.memberships:
            holders[f"group:{group}"] = user
            self._add("memberships", user, (user, group))
        for assignment in state.assignments:
            user = holders.get(assignment.principal) or assignment.principal.removeprefix("user:")
            holders[f"role:{assignment.role}"] = user
            self._add("assignments", user, assignment)
        for member in state.members:
            self._add("members", member[0], member)
        for grant in state.grants:
            self._add("grants", holders.get(grant.grantee, grant.grantee.removeprefix("user:")), grant)
        for owned in state.owners:
            self._add("owners", holders.get(owned[1], owned[1].removeprefix("user:")), owned)
        for user in state.service_admins:
            self._add("service_admins", user, user)

        for row in state.attributes:
            if row.user is not None:
                self._add("attributes", row.user, row)
            else:
                self._of_entities[str(row.entity)].append(row)

    def _add(self, table: str, user: str, row: object) -> None:
        self._tables.setdefault(user, {}).setdefault(table, []).append(row)

    def of(self, request: Request) -> State:
        tables = {table: tuple(rows) for table, rows in self._tables.get(request.user, {}).items()}
        objects = (request.resource, *request.with_.values()) if self._of_entities else ()
        keys = dict.fromkeys(key for entity in objects for key in self._keys(entity))
        of_entities = [row for key in keys for row in self._of_entities.get(key, ())]
        tables["attributes"] = (*tables.get("attributes", ()), *of_entities)
        return State(**tables)  # type: ignore[arg-type]


class ObservedCandidates(RowMasks):
    """The candidates of one row."""

    def __init__(self, program: Program, rule: Rule, candidates: Collection[Candidate]) -> None:
        super().__init__(program, rule, len(candidates))
        empty_reference, names = Reference(program, State()), privilege_names(program)
        by_setting: dict[int, _SettingCandidates] = {}
        for position, candidate in enumerate(candidates):
            number = id(candidate.setting)
            if number not in by_setting:
                by_setting[number] = _SettingCandidates(empty_reference, names, candidate.setting)
            by_setting[number].add(candidate, 1 << position)
        self._settings = tuple(by_setting.values())

    @cached_property
    def named(self) -> Mask:
        """As RowMasks.named."""
        return _union(known.mask for known in self._settings if RESOURCE in known.context.complete)

    def _with_atom(self, atom: Atom) -> Mask:
        return _union(known.with_atom(atom) for known in self._settings)

    def _with_flag(self, flag: str) -> Mask:
        return _union(known.mask for known in self._settings if flag in known.context.flags)

    def _with_type(self, slot: str, type_: str) -> Mask:
        return _union(known.mask for known in self._settings if known.context.types[slot] == type_)


class _SettingCandidates:
    """The candidates for one kind of request, and for each thing that some are given: who they are."""

    def __init__(self, empty_reference: Reference, names: PrivilegeNames, setting: Setting) -> None:
        """`empty_reference`: an engine with an empty state, for the paths of the request."""
        self._names = names
        self.context = EvaluationContext(empty_reference, setting.request)
        self.mask: Mask = 0
        self._held: dict[HeldAtom, Mask] = {}
        self._denied: dict[HeldAtom, Mask] = {}
        self._values: list[tuple[Values, Mask]] = []
        """The values of attributes, with the candidates that have them."""
        owner = self.context.program.semantics.owner
        self._owners_hold = frozenset(owner.holds if owner else ())

    def add(self, candidate: Candidate, bit: Mask) -> None:
        """A candidate, who has this bit of the masks."""
        self.mask |= bit
        if candidate.caller.values:
            self._values.append((candidate.caller.values, bit))
        for atoms, masks in ((candidate.caller.held, self._held), (candidate.caller.denied, self._denied)):
            for atom in atoms:
                masks[atom] = masks.get(atom, 0) | bit

    def with_atom(self, atom: Atom) -> Mask:
        """Who holds an atom."""
        match atom:
            case Has() | Owner() | Member() if atom.target.level in ("any", "every"):
                masks = [self.with_atom(replace(atom, target=at)) for at in self.context.located(atom.target)]
                return _union(masks) if atom.target.level == "any" else reduce(and_, masks)
            case Has():
                return self._has(atom.privilege, self.context.path(atom.target))
            case Owner():
                return self._exactly("owner", atom.target)
            case Member():
                return self._exactly("member", atom.target)
            case Holds():
                return self._exactly("holds", atom.target)
            case Self():
                return self._held.get(HeldAtom("self"), 0) if atom.target.slot == RESOURCE else 0
            case ServiceAdmin():
                return self._held.get(HeldAtom("admin"), 0)
            case HasBelow(privilege=privilege, target=target):
                return _union(self._has(privilege, path) for path in self._paths_from(target))
            case OwnsBelow(target=target):
                return _union(self._held.get(HeldAtom("owner", "", path[-1]), 0) for path in self._paths_from(target))
            case Compare():
                return _union(bit for values, bit in self._values if self._compares(atom, values))
            case _:
                assert_never(atom)

    def _compares(self, compare: Compare, values: Values) -> bool:
        """As EvaluationContext.compares, with the values of a candidate."""
        return fulfilled(compare, lambda term: self._value(term, values))

    def _value(self, term: Term, values: Values) -> object:
        if term.target is None:
            return values.get(term)
        path = self.context.path(term.target)
        return values.get(about_entity(term, path[-1])) if path else None

    def _exactly(self, kind: AtomKind, target: Target) -> Mask:
        path = self.context.path(target)
        return self._held.get(HeldAtom(kind, "", path[-1]), 0) if path else 0

    def _paths_from(self, target: Target) -> Iterator[tuple[str, ...]]:
        """As EvaluationContext.paths_from, for all that some candidate is given."""
        path = self.context.path(target)
        if not path:
            return
        yield path
        for key in {atom.on for masks in (self._held, self._denied) for atom in masks if atom.on}:
            keys = tuple(self.context.vocabulary.keys(Entity.parse(key)))
            if path[-1] in keys[:-1]:
                yield keys

    def _has(self, privilege: str, path: tuple[str, ...]) -> Mask:
        keys = self.context.relevant_keys(privilege, path)
        owned = keys if privilege in self._owners_hold else ()
        owners = _union(self._held.get(HeldAtom("owner", "", key), 0) for key in owned)
        granted = self._given(self._held, privilege, keys, "allow")
        denies = self.context.program.semantics.deny == "overrides"
        return owners | (granted & ~self._given(self._denied, privilege, keys, "deny") if denies else granted)

    def _given(self, masks: Mapping[HeldAtom, Mask], privilege: str, keys: Iterable[str], effect: str) -> Mask:
        return _union(
            masks.get(HeldAtom("has", name, key), 0)
            for key in keys
            for name in self._names.giving(privilege, key.partition(":")[0], effect)
        )


def _union(masks: Iterable[Mask]) -> Mask:
    found = 0
    for mask in masks:
        found |= mask
    return found
