"""The smallest counterexample to an implication between conditions, by enumeration: apart from the solver, for tests of it.

A condition is monotone in grants, ownership, memberships and assignments, and antitone in denials, so `f` fails to imply `g`
exactly if some minimal set of `f` can be given in such a way that `g` does not hold once every denial is added that leaves the
set intact. Which facts give an atom, and which denials take it away, is what `ir.facts` says; of two facts that give one, only that
which gives less of `g` has to be tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product
from math import prod
from typing import NamedTuple, TypeAlias

from privtab.base.errors import Undecided, UnsupportedError
from privtab.base.vocabulary import kinds_of_requests
from privtab.ir.canonical import AtomSet, canonical_form
from privtab.ir.comparisons import Comparisons
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import Fact, Facts, FactSemantics, Granted, Holding
from privtab.ir.formula import reached_atoms, without_name
from privtab.ir.nodes import Atom, ByType, Compare, Formula, Program, Rule
from privtab.ir.shapes import condition_flags, rule_flags

_MAX_CHOICES = 1_000
"""Limit on the choices of comparisons that hold."""
_MAX_COMBINATIONS = 50_000
"""Limit on the ways to give one minimal set; to exceed it, a table would have to ask for a dozen things through a dozen owners."""

_Gives: TypeAlias = list[tuple[int, Facts]]
"""The atoms of the second condition that a fact gives, by number, each with the denials that take it away."""


class _Effects(NamedTuple):
    """What affects the second condition."""

    gives: Mapping[Fact, _Gives]
    denials: list[Fact]
    """Those of privileges first, and those of the caller."""
    comparisons: list[Compare]


class _Choice(NamedTuple):
    """A fact that gives an atom of the first condition, and what must not be denied for it to count."""

    fact: Fact
    protected: Facts
    gives: _Gives

    def covers(self, other: _Choice) -> bool:
        """Whether the other need not be tried beside this one: it gives no less, and bears no more denials."""
        return self.protected <= other.protected and all(
            any(atom == a and by <= denied for a, by in other.gives) for atom, denied in self.gives
        )


class CounterexampleSearch:
    """Searches the facts that give a condition of the first program without giving one of the second."""

    def __init__(self, semantics: FactSemantics, other_semantics: FactSemantics) -> None:
        self.semantics = semantics
        self.other_semantics = other_semantics
        self._comparisons = Comparisons(semantics.program, other_semantics.program)
        self.program = semantics.program
        self.other_program = other_semantics.program
        self._last: tuple[Formula, _Effects] | None = None

    def all(
        self, f: Formula, g: Formula, flags: frozenset[str], types: Mapping[str, str], *, alike: bool
    ) -> Iterator[Facts]:
        """Sets of facts under which `f` holds in the first program and `g` does not in the other.

        `alike`: whether everything that the conditions refer to means the same in both programs.
        """
        form = canonical_form(self.program)
        effects = self._effects(g)
        other_sets = (
            [frozenset(s) for s in canonical_form(self.other_program).minimal_sets(g, flags, types)] if alike else ()
        )
        for atoms in map(frozenset, form.minimal_sets(f, flags, types)):
            if alike and form.implies([atoms], other_sets):
                continue
            for chosen in self._choices(atoms, effects):
                protected = frozenset().union(*(choice.protected for choice in chosen))
                possible = [denial for denial in effects.denials if denial not in protected]
                for base in self._with_comparisons(frozenset(choice.fact for choice in chosen), effects.comparisons):
                    if not self.other_semantics.holds(g, base.union(possible), flags, types):
                        yield self._with_fewest_denials(base, possible, g, flags, types)

    def _effects(self, g: Formula) -> _Effects:
        """What affects the second condition; the last one is kept, which is compared with many sets."""
        if self._last is None or self._last[0] is not g:
            gives: dict[Fact, _Gives] = {}
            denials: set[Fact] = set()
            atoms = dict.fromkeys(reached_atoms(self.other_program, g))
            for number, atom in enumerate(atoms):
                for given in self.other_semantics.giving(atom):
                    denials |= given.denying
                    for places, denying in ((given.firm, frozenset[Fact]()), (given.grants, given.denying)):
                        for fact in chain.from_iterable(places):
                            gives.setdefault(fact, []).append((number, denying))
            comparisons = sorted((atom for atom in atoms if isinstance(atom, Compare)), key=repr)
            self._last = g, _Effects(gives, sorted(denials, key=self._order), comparisons)
        return self._last[1]

    def _order(self, denial: Fact) -> tuple[bool, bool, str]:
        assert isinstance(denial, Granted)
        return denial.name not in self.program.privileges, denial.carrier != "user", repr(denial)

    def _with_comparisons(self, base: Facts, of_g: Sequence[Compare]) -> Iterator[Facts]:
        """The facts with every choice of the comparisons of `g` that hold beside theirs, for which there are values."""
        own = [fact.compare for fact in base if isinstance(fact, Holding)]
        choices: list[tuple[list[Compare], list[Compare]]] = [(own, [])]
        for compare in of_g:
            wider = [
                choice
                for true, false in choices
                for choice in ((true, [*false, compare]), ([*true, compare], false))
                if self._comparisons.values(*choice) is not None
            ]
            if len(wider) > _MAX_CHOICES:
                raise Undecided(f"not decided: {len(of_g)} comparisons of attributes hold in too many ways")
            choices = wider
        for true, _ in choices:
            yield base | {Holding(compare=compare) for compare in true}

    def _choices(self, atoms: AtomSet, effects: _Effects) -> Iterator[tuple[_Choice, ...]]:
        """The ways to give a set of atoms in the first program."""
        in_order = sorted(atoms, key=canonical_form(self.program).order)
        options = [self._giving(atom, effects) for atom in in_order if not isinstance(atom, ByType)]
        if prod(map(len, options)) > _MAX_COMBINATIONS:
            raise UnsupportedError(
                f"one condition requires {len(atoms)} atoms that can be given in more than {_MAX_COMBINATIONS:,} ways"
            )
        yield from product(*options)

    def _giving(self, atom: Atom, effects: _Effects) -> list[_Choice]:
        """The ways to give one atom, limited to those with the least effect in the other program."""
        found: list[_Choice] = []
        for fact, protected in self.semantics.options(atom).items():
            gives = [(number, denying - protected) for number, denying in effects.gives.get(fact, ())]
            choice = _Choice(fact, protected, gives)
            if not any(earlier.covers(choice) for earlier in found):
                found.append(choice)
        return found

    def _with_fewest_denials(
        self,
        base: Facts,
        needed: list[Fact],
        g: Formula,
        flags: frozenset[str],
        types: Mapping[str, str],
    ) -> Facts:
        """The base facts with as few of the denials as suffice to keep `g` from holding."""

        def refutes(chosen: Iterable[Fact]) -> bool:
            return not self.other_semantics.holds(g, base | frozenset(chosen), flags, types)

        for chosen in chain.from_iterable(combinations(needed, size) for size in range(3)):
            if refutes(chosen):
                return base | frozenset(chosen)
        for denial in tuple(needed):
            rest = [d for d in needed if d != denial]
            if refutes(rest):
                needed = rest
        return base | frozenset(needed)


def counterexample(
    exact: ImplicationChecker,
    f: Formula,
    g: Formula,
    flags: frozenset[str] = frozenset(),
    types: Mapping[str, str] | None = None,
    *,
    unnamed: str | None = None,
) -> Facts | None:
    """The fewest facts under which `f` holds in one program and `g` does not in the other, or None if `f` implies `g`.

    Each gives one atom of `f`; that a fact further up or a set may give several is not considered.
    Arguments as for `ImplicationChecker.implies`; no type may nest.
    """
    if unnamed is not None:
        f, g = without_name(exact.program, f, unnamed), without_name(exact.other_program, g, unnamed)
    exact.check_attributes(f, g)
    exact.check_below(f, g)
    search = CounterexampleSearch(exact.semantics, exact.other_semantics)
    found = list(islice(search.all(f, g, flags, types or {}, alike=exact.alike(f, g)), 200))
    return min(found, key=lambda facts: (len(facts), sorted(map(repr, facts))), default=None)


def request_settings(
    program: Program, rule: Rule, *further: Formula
) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    """Every set of the flags that a rule depends on, with every choice of types for its `with` objects.

    `further`: conditions whose flags are included.
    """
    flags = set(rule_flags(program, rule))
    for formula in further:
        flags |= condition_flags(program, formula)
    for chosen, types in kinds_of_requests(flags, {slot.name: slot.types for slot in rule.withs}):
        yield frozenset(chosen), types
