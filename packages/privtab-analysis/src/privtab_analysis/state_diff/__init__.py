"""The exact difference between two states: the rows and, under a policy, the gained and lost operations of every user on every entity.

Only decisions that a changed row can change are compared. Subjects that are affected at the same places are decided together,
by set algebra, and entities with equal answers once; so the work depends on the rows that changed, not on the states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations, product
from math import prod
from time import time_ns

from privtab.base import LEFT_OUT, Entity, FilterWord, count
from privtab.ir import RESOURCE, Below, Feature, Program, Rule, Term, Tool, reached_atoms, rule_flags
from privtab.state import Places, State
from privtab_analysis.entitlements.columns import Columns
from privtab_analysis.entitlements.equivalence import prefixes
from privtab_analysis.permissions import questions
from privtab_analysis.state_diff.answers import BatchAnswers, Differing, Inquiry, Tally
from privtab_analysis.state_diff.batches import AffectedPlaces, Batch
from privtab_analysis.state_diff.causes import Cause, Causes, ChangeImpact
from privtab_analysis.state_diff.class_columns import ClassColumns
from privtab_analysis.state_diff.entities import Affected, DividedClasses, Division, EntityClass, EntityTree, written
from privtab_analysis.state_diff.masks import Forms, SubjectMasks
from privtab_analysis.state_diff.nodes import ChangedAccess, ChangedRow, StateDiff
from privtab_analysis.state_diff.placed import placed
from privtab_analysis.state_diff.rows import added_rows, changed_rows, with_tables_of, with_windows
from privtab_analysis.state_diff.subjects import BatchSets, Question, Side, Subject, SubjectSets
from privtab_analysis.state_diff.together import Change, Classes, KnownChanges, alike_as_one

__all__ = ["ChangedAccess", "ChangedRow", "StateDiff", "changed_rows", "state_diff"]

MOST_QUESTIONS = 1_000_000
"""Limit on the questions that are decided in both states; this takes a minute or two."""
MOST_COMBINATIONS = 100_000
"""Limit on the combinations of classes of objects that are compared for one operation and one group of subjects."""
MOST_NAMELESS = 3
"""Places without named entities that a note lists."""
MOST_LOOKED_AT = 1000
"""Limit on the places where named entities are looked for, for a note."""
FEW = 8
"""Subjects up to which all their rows are looked at, and not the rows on the affected entities."""
MOST_AROUND = 20_000
"""Affected entities up to which the rows on these are looked at."""
MOST_FLAGS = 4
"""Limit on the flags of one rule whose combinations are all compared."""


def state_diff(
    program: Program,
    before: State,
    after: State,
    *,
    places: tuple[Places, Places] = (Places.NONE, Places.NONE),
    moment: int | None = None,
    most: int = MOST_QUESTIONS,
    tell: Callable[[int, int], None] | None = None,
    entities: Iterable[Entity] = (),
    causes: bool = True,
    alike_together: bool = False,
) -> StateDiff:
    """Compare two states of one policy: every user, every operation, and every entity that either state names.

    As in `what-can`, operations that create are compared at the entity that contains the new one. Rows are compared with their
    windows, decisions at one moment (default: now). `tell` is called with the number of batches of affected subjects that are done, and
    with the number of all of them. `entities` are compared besides the entities that a state names. Without `causes`, the rows that make a difference are not looked for, and each change has none.
    `alike_together`: classes of entities with the same changes are one, which takes less time and gives the same summary.
    """
    Tool.STATE_DIFF.check(program)
    after = with_tables_of(before, after)
    rows = tuple(changed_rows(before, after, places))
    at_moment = time_ns() if moment is None else moment
    states = before.at(at_moment), after.at(at_moment)
    plain_rows = rows if states[0] is before and states[1] is after else tuple(changed_rows(*states))
    # Where ids are flat, the rows of a state tell which entities lie somewhere.
    naming = [] if program.flat else [State(owners=tuple((entity, "") for entity in entities))]
    sides = Side(program, placed(program, states[0])), Side(program, placed(program, states[1]))
    comparison = Comparison(program, sides, plain_rows, most, naming, causes=causes, alike_together=alike_together)
    found = comparison.all(tell)
    access = tuple(found if comparison.rows is rows else with_windows(found, rows, at_moment))
    return StateDiff(
        rows=rows,
        access=access,
        decided=comparison.decided,
        undecided=tuple(dict.fromkeys(comparison.undecided)),
        notes=tuple(comparison.notes()),
    )


class Comparison:
    """The comparison of the decisions of two states, or of two policies in one state."""

    def __init__(
        self,
        program: Program,
        sides: tuple[Side, Side],
        rows: Sequence[ChangedRow],
        most: int,
        naming: Sequence[State] = (),
        *,
        causes: bool,
        alike_together: bool = False,
    ) -> None:
        self.program = program
        self.sensitive = program.sensitive
        self.sides = sides
        self.rows = rows
        self.most = most
        self.naming = naming
        """Rows that name further entities."""
        self.only: Collection[tuple[str, str]] | None = None
        """The operations that are compared, by type and name; None: every one."""
        self.wants_causes = causes
        self.alike_together = alike_together
        self._affected: frozenset[str] = frozenset()
        """Addresses at or below which the changed rows matter."""
        self._places: tuple[AffectedPlaces, ...] = ()
        self.tally = Tally(most)
        self.undecided = self.tally.undecided
        rules = program.rules.values() if Feature.BELOW.used_by(program) else ()
        below = (atom for rule in rules for atom in reached_atoms(program, rule.item_condition))
        depths = [program.depth(atom.target.type) for atom in below if isinstance(atom, Below)]
        self.least_below = min([*depths, *([1] if depths and program.flat else [])], default=None)
        """The fewest names in the address of an entity that a condition asks about with all below it; None if none does."""
        self._questions: dict[tuple[str, bool], list[Question]] = {}
        self._forms = Forms(program)
        self._earlier: dict[tuple[str, ...], frozenset[Subject]] = {}
        self._numbers: dict[object, int] = {}
        """Equal for questions that ask the same, under whatever name."""

    @property
    def decided(self) -> int:
        """The number of questions that were decided."""
        return self.tally.decided

    def all(self, tell: Callable[[int, int], None] | None = None) -> Iterator[ChangedAccess]:
        """Every changed access."""
        if not self.rows:
            return
        impact = ChangeImpact(self.program, self.sides, self.tree)
        affected = impact.by_subject(self.rows)
        # Scopes of roles may lie elsewhere where entities have moved.
        if not self.program.flat:
            self.sides[1].holds_as(self.sides[0], impact.holding_otherwise)
        self.causes = Causes(self.program, self.sides, self.rows, self.tree.addresses, self.tally)
        self._affected = frozenset().union(*affected.values())
        containing = {subject: self._containing(paths) for subject, paths in affected.items()}
        by_grants = AffectedPlaces({s: paths for s, paths in containing.items() if s not in impact.otherwise})
        others = AffectedPlaces({s: paths for s, paths in containing.items() if s in impact.otherwise})
        self._places = by_grants, others
        # Rows about what lies below concern the entities around it.
        batches: list[tuple[Batch, Collection[str] | None]] = [
            (batch, impact.privileges(batch.roots) if self.least_below is None else None)
            for batch in by_grants.batches()
        ]
        batches += ((batch, None) for batch in others.batches())
        cuts, sets, masks = self._prepared([batch for batch, _ in batches])
        for number, (batch, privileges) in enumerate(batches):
            if tell is not None:
                tell(number, len(batches))
            yield from self._of(batch, cuts[number], sets, masks, privileges)
            if self.tally.full:
                left = {subject for batch, _ in batches[number:] for subject in batch.subjects}
                self.undecided.append(
                    f"more than {self.most:,} questions to decide: {len(left):,} of {len(affected):,} affected "
                    "subjects were not compared completely"
                )
                return

    def everywhere(self, subjects: Iterable[Subject]) -> Iterator[ChangedAccess]:
        """The changed access of some subjects on everything, as far as `most` allows: for changes of meaning, not of rows."""
        batch = Batch(sorted(subjects), frozenset([""]))
        (cuts,), sets, masks = self._prepared([batch])
        yield from self._of(batch, cuts, sets, masks)
        if self.tally.full:
            self.undecided.append(f"more than {self.most:,} questions to decide: not everything was compared")

    def _prepared(
        self, batches: Sequence[Batch]
    ) -> tuple[list[set[str]], tuple[SubjectSets, SubjectSets], SubjectMasks | None]:
        """The addresses with rows that matter for each batch; and all subjects with these rows, in each state, and as bits."""
        rows: list[dict[str, set[int]]] = [defaultdict(set) for _ in self.sides]
        cuts = [self._cuts(batch.subjects, self._keys_around(batch), rows) for batch in batches]
        subjects = {subject for batch in batches for subject in batch.subjects}
        sets = SubjectSets(self.sides[0], subjects, rows[0]), SubjectSets(self.sides[1], subjects, rows[1])
        one_policy = self.sides[0].program is self.sides[1].program
        return cuts, sets, SubjectMasks(self._forms, sets) if self._by_path and one_policy else None

    @cached_property
    def _by_path(self) -> bool:
        """Return whether the path of an entity tells everything: not where entities lie elsewhere, or types nest."""
        return not self.program.flat and not self.tree.nested

    @cached_property
    def tree(self) -> EntityTree:
        """The entities of both states."""
        before, after = (side.state for side in self.sides)
        if self.rows and not self.program.flat:
            after = added_rows(self.rows)
        return EntityTree(self.program, before, after, *self.naming)

    @cached_property
    def named(self) -> Mapping[str, set[str]]:
        """The addresses that a principal's name may refer to."""
        return self.tree.named([t.name for t in self.program.entities.values() if t.principal is not None])

    def notes(self) -> Iterator[str]:
        """Limits of the answer: differences that it does not cover although it may seem to."""
        if self.sides[0].uses.request_groups and self.rows:
            yield "groups of requests are compared one at a time: `group:NAME` is a user whose request names that group alone"
        parts = {
            part.attribute if isinstance(part, Term) else part for one in self.program.filters for part in one.parts
        }
        if any(
            row.cells.get("attribute") in parts or (row.table == "memberships" and FilterWord("groups") in parts)
            for row in self.rows
        ):
            yield "values that stand in the SQL of row filters and column masks are not compared"
        if nameless := list(self._nameless()):
            more = (
                f", and {count(len(nameless) - MOST_NAMELESS, 'more place')}" if len(nameless) > MOST_NAMELESS else ""
            )
            yield f"no row names {'; '.join(nameless[:MOST_NAMELESS])}{more}: what changes for such is not compared"

    def _nameless(self) -> Iterator[str]:
        """The changes for entities that no row names, if no named entity of their type would show them."""
        inside: dict[str, list[str]] = defaultdict(list)
        for type_ in dict.fromkeys(rule.entity for rule in self.program.rules.values()):
            for outer in self.program.chain(type_)[:-1]:
                inside[outer].append(type_)
        for address in () if self.program.flat else sorted(self._affected)[:MOST_LOOKED_AT]:
            spans = {type_: self.tree.span(type_, address) for type_ in {*inside, *chain(*inside.values())}}
            for outer, types in inside.items():
                missing = [t for t in types if spans[t][2] == spans[t][3]]
                if missing and spans[outer][0] < spans[outer][1]:
                    yield f"a {' or '.join(missing)} in `{outer}:{written(address)}`"

    def _of(
        self,
        batch: Batch,
        cuts: Collection[str],
        all_sets: tuple[SubjectSets, SubjectSets],
        masks: SubjectMasks | None,
        privileges: Collection[str] | None = None,
    ) -> Iterator[ChangedAccess]:
        """The changed access of a batch; `privileges`: by conditions that name some of these, None: by any."""
        division, under = self._divided(batch, cuts)
        sets, divided = BatchSets(all_sets, batch.subjects), DividedClasses(division, under)
        at_once = masks is not None and Columns.fit(self.program)
        answers = BatchAnswers(sets, masks, self.number, self.tally, alike=self._by_path and not at_once)
        columns = ClassColumns(sets, divided, self._forms, self.number, self.tally) if at_once else None
        # Without an object of a type, no question is about the type.
        for type_ in filter(self.tree.paths.get, ("", *self.program.entities)):
            plain, others = (
                [own for own in found if privileges is None or not own[0].privileges.isdisjoint(privileges)]
                for found in self.questions_of_type(type_)
            )
            if self.tally.full:
                return
            # Joined or not, the same classes are listed: classes are counted before they are joined.
            found = self.tally.until_full(self._of_type(type_, plain, others, divided, answers, columns))
            for classes, changes in alike_as_one(found) if self.alike_together else found:
                yield from (change.access(classes, self.sensitive) for change in changes)

    def _of_type(
        self,
        type_: str,
        plain: Sequence[Sequence[Question]],
        others: Sequence[Sequence[Question]],
        divided: DividedClasses,
        answers: BatchAnswers,
        columns: ClassColumns | None,
    ) -> Iterator[tuple[Classes, Sequence[Change]]]:
        """The changes by questions about resources of a type: `plain` ones, and `others` with `with` objects."""
        affected = divided.of(type_, "yes")
        if affected and columns is not None and columns.suit(len(affected)):
            known: KnownChanges = {}
            for found, differing in columns.plain(plain, type_):
                yield {RESOURCE: found}, self._changed({RESOURCE: found}, differing, known=known)
        else:
            of_plain = Inquiry(plain)
            for _, found in affected:
                yield {RESOURCE: found}, self._changes(of_plain, {RESOURCE: found}, answers)
        for question in others:
            yield from self._with_objects(question, type_, divided, answers, columns)

    def classes(self, subjects: Collection[Subject], roots: frozenset[str]) -> tuple[Division, set[str]]:
        """The entities in classes that have equal answers for each of some subjects, and which of them lie at or below some paths."""
        return self._divided(Batch(sorted(subjects), roots), self._cuts(subjects))

    def _divided(self, batch: Batch, cuts: Collection[str]) -> tuple[Division, set[str]]:
        # What has moved lies elsewhere in one of the states, or nowhere.
        moved = map(self.tree.addresses.of, self.tree.addresses.moved)
        cuts = {*batch.roots, *batch.others, *cuts, *moved}
        if self.least_below is not None:
            # A row concerns all that contain its entity, and whatever lies in these.
            cuts = {outer for path in cuts for outer in self.tree.around(path)}
        division = self.tree.divided(cuts)
        return division, division.under(batch.roots, batch.others)

    def _containing(self, paths: Collection[str]) -> Collection[str]:
        """The paths, with the paths that contain these if conditions ask about what lies below."""
        if (least := self.least_below) is None:
            return paths
        outer = {outer for path in paths for outer in self.tree.around(path) if len(Entity("", outer).names) >= least}
        return outer.union(paths)

    def _keys_around(self, batch: Batch) -> set[str] | None:
        """The entities that rows about the subjects of a batch must name to matter; None if all may."""
        if self.program.flat or self.tree.nested or self.least_below is not None or len(batch.subjects) <= FEW:
            return None
        types = self.program.entities
        found = {f"{type_}:{outer}" for root in batch.roots for outer in prefixes(root) for type_ in types}
        # Objects elsewhere matter as far as a request names them beside an affected object.
        spans = {type_: [self.tree.span(type_, root) for root in batch.roots] for type_ in types}
        affected = {type_ for type_ in types if any(a < b or c < d for a, b, c, d in spans[type_])}
        elsewhere: set[str] = set()
        for slots in self._types_of_slots:
            for slot, own in slots.items():
                if not affected.isdisjoint(own):
                    elsewhere.update(*(others for other, others in slots.items() if other != slot))
        whole = {outer for type_ in elsewhere if type_ for outer in self.program.chain(type_)}
        for type_ in types:
            paths = self.tree.paths[type_]
            ranges = [(0, len(paths))] if type_ in whole else [(begin, end) for *_, begin, end in spans[type_]]
            if len(found) + sum(end - begin for begin, end in ranges) > MOST_AROUND:
                return None
            found.update(f"{type_}:{path}" for begin, end in ranges for path in paths[begin:end])
        return found

    @cached_property
    def _types_of_slots(self) -> list[Mapping[str, Collection[str]]]:
        """The types of the resource and of the `with` objects, of each question with the latter."""
        return [
            {RESOURCE: (type_,), **{slot.name: slot.named for slot in variants[0].rule.withs}}
            for type_ in ("", *self.program.entities)
            for variants in self.questions_of_type(type_)[1]
        ]

    def questions_of_type(self, type_: str) -> tuple[list[list[Question]], list[list[Question]]]:
        """The questions about entities of a type, by rule and for each set of flags: without `with` objects, and with them."""
        plain: list[list[Question]] = []
        others: list[list[Question]] = []
        states = [side.state for side in self.sides]
        for rule, unnamed in questions(self.program, type_):
            if self.only is not None and (rule.entity, rule.operation) not in self.only:
                continue
            key = rule.id, unnamed
            if key not in self._questions:
                self._questions[key] = [
                    Question.of(self.program, rule, flags, states, unnamed=unnamed) for flags in self._flags(rule)
                ]
            (others if rule.withs else plain).append(self._questions[key])
        return plain, others

    def _flags(self, rule: Rule) -> Iterator[tuple[str, ...]]:
        """Every set of the flags that a rule depends on, smaller ones first."""
        tried = (rule, *self.program.earlier(rule.entity, rule.operation))
        flags = list(dict.fromkeys(flag for one in tried for flag in rule_flags(self.program, one)))
        if len(flags) > MOST_FLAGS:
            self.undecided.append(f"`{rule.id}` depends on {len(flags)} flags: at most {MOST_FLAGS} were set together")
        for size in range(min(len(flags), MOST_FLAGS) + 1):
            yield from combinations(flags, size)

    def _cuts(
        self,
        subjects: Collection[Subject],
        around: Collection[str] | None = None,
        rows: Sequence[dict[str, set[int]]] | None = None,
    ) -> set[str]:
        """The addresses with rows about the subjects in either state; `around`: of these entities alone. The rows are added to `rows`."""
        keys: set[str] = set()
        names = {subject.partition(":")[2] for subject in subjects}
        users = [subject[5:] for subject in subjects if subject.startswith("user:")]
        for number, side in enumerate(self.sides):
            holdings = [side.holding(subject) for subject in subjects]
            of_side = side.compared_entities | side.memberships_of(users)
            for table, found in side.rights({p for holding in holdings for p in holding.everything}, around):
                of_side.update(side.state.column(table, "entity").take(found))  # type: ignore[arg-type]
                if rows is not None:
                    rows[number][table].update(found)
            keys |= of_side if around is None else of_side.intersection(around)
            keys |= {scope for holding in holdings for _, scope in holding.scoped}
            names |= {name for holding in holdings for name in holding.groups | holding.roles}
        found_at = {self.tree.addresses.of(key) for key in keys}
        if self.named:
            for name in names:
                found_at |= self.named.get(name, set())
        return found_at

    def _with_objects(
        self,
        variants: Sequence[Question],
        type_: str,
        divided: DividedClasses,
        answers: BatchAnswers,
        columns: ClassColumns | None,
    ) -> Iterator[tuple[Classes, Sequence[Change]]]:
        """The changes by a question with `with` objects, where the resource or at least one of these is affected."""
        rule, inquiry = variants[0].rule, Inquiry([variants])
        all_types = {RESOURCE: (type_,), **{slot.name: slot.named for slot in rule.withs}}
        no_object = {slot.name: (None,) for slot in rule.withs if LEFT_OUT in slot.types}

        def pool(slot: str, affected: Affected) -> list[tuple[str, EntityClass] | None]:
            classes = (own for name in all_types[slot] for own in divided.of(name, affected))
            if variants[0].given.of_entities:
                # What a request says of one object, it says wherever it names that object.
                classes = ((cut, single) for cut, found in classes for single in found.single())
            return [*(no_object.get(slot, ()) if affected != "yes" else ()), *classes]

        some = all(slot in no_object or any(map(self.tree.paths.get, own)) for slot, own in all_types.items())
        for position, first in enumerate(all_types):
            if not some or not pool(first, "yes"):
                continue
            which = divided.affected_from(position, len(all_types))
            pools = [pool(slot, affected) for slot, affected in zip(all_types, which, strict=True)]
            count = prod(map(len, pools))
            if count > MOST_COMBINATIONS:
                self.undecided.append(
                    f"`{rule.id}` has {count:,} kinds of `with` objects to compare; {MOST_COMBINATIONS:,} is the most"
                )
            elif count and columns is not None and columns.suit(count):
                types = {
                    slot: (*(no_object.get(slot, ()) if affected != "yes" else ()), *own)
                    for (slot, own), affected in zip(all_types.items(), which, strict=True)
                }
                known: KnownChanges = {}
                for objects, before, differing in columns.combined(variants, types, which):
                    yield objects, self._changed(objects, differing, before, known=known)
            elif count:
                for combination in product(*pools):
                    # Other subjects of the batch may be affected there already.
                    before = tuple([found[0] for found in combination[:position] if found is not None])
                    classes = {
                        slot: found[1] for slot, found in zip(all_types, combination, strict=True) if found is not None
                    }
                    yield classes, self._changes(inquiry, classes, answers, before)

    def _left_out(self, cuts: tuple[str, ...]) -> frozenset[Subject]:
        """The subjects that are affected at some paths."""
        if cuts not in self._earlier:
            earlier = (places.subjects(cut) for places in self._places for cut in cuts)
            self._earlier[cuts] = frozenset[Subject]().union(*earlier)
        return self._earlier[cuts]

    def _changes(
        self,
        inquiry: Inquiry,
        classes: Classes,
        answers: BatchAnswers,
        cuts_before: tuple[str, ...] = (),
    ) -> Sequence[Change]:
        """The changes for a class of entities, but for subjects that are affected at some paths."""
        differing = answers.differing(inquiry, {slot: found.first for slot, found in classes.items()})
        return self._changed(classes, differing, cuts_before) if differing else ()

    def _changed(
        self,
        classes: Classes,
        differing: Sequence[Differing],
        cuts_before: tuple[str, ...] = (),
        *,
        known: KnownChanges | None = None,
    ) -> Sequence[Change]:
        """As `_changes`, from the differences. `known`: by differences, which are kept."""
        left_out, finder = self._left_out(cuts_before), None
        addresses = [found.address for found in classes.values()]
        key = id(differing), left_out, *(self.causes.on(addresses) if self.wants_causes else ())
        if known is not None and key in known:
            return known[key]
        changes: list[Change] = []
        for variants, found in differing:
            for gained, position, given, by_all in found:
                question, new = variants[position], by_all - left_out if left_out else by_all
                if not new:
                    continue
                by_rows: Iterable[Cause] | None = None if self.wants_causes else [(tuple(sorted(new)), ())]
                if by_rows is None and self._by_path:
                    by_rows = self.causes.single(new, addresses)
                if by_rows is None:
                    finder = finder or self.causes.at({slot: class_.first for slot, class_ in classes.items()})
                    by_rows = finder.of(question, new, given, gained=gained)
                changes += (Change(gained, question, given, subjects, rows) for subjects, rows in by_rows)
        if known is not None and finder is None:
            known[key] = changes
        return changes

    def number(self, variants: Sequence[Question]) -> int:
        """A number that is equal for questions that ask the same."""
        if id(variants) not in self._numbers:  # which are kept
            meaning = tuple((asked.condition, asked.before, asked.flags, asked.unnamed) for asked in variants)
            self._numbers[id(variants)] = self._numbers.setdefault(meaning, len(self._numbers))
        return self._numbers[id(variants)]
