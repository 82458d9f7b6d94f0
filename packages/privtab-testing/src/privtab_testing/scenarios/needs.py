"""Entries of `needs`: generates callers from all minimal ways of a request, who have exactly one way, or none."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice, product
from math import prod

from privtab.base import Entity, Locations, Request, Span, Undecided, UsageError
from privtab.ir import (
    RESOURCE,
    Atom,
    Below,
    Compare,
    Has,
    Program,
    Target,
    Term,
    asked_condition,
    canonical_form,
    reached_atoms,
    vocabulary,
)
from privtab.language import YamlNode
from privtab.state import Placement, State, locations
from privtab_analysis.locations import GrowingLocations
from privtab_analysis.rights import Right, about, privilege_on, right_text
from privtab_testing.scenarios import Case
from privtab_testing.scenarios.author import NEEDS_CONTEXT_KEYS, Author
from privtab_testing.scenarios.callers import (
    AttributeValues,
    CallerSemantics,
    Denied,
    HeldSet,
    HeldSets,
    at_or_below,
    compares,
    in_order,
    set_text,
    smallest,
)
from privtab_testing.scenarios.generated import Caller, CallerStates
from privtab_testing.scenarios.held_sets import MAX_WAYS
from privtab_testing.scenarios.tree import Fields, Values

MAX_SINGLE = 32
"""The limit on single values that are tried for one request."""


class ComparedAttributes:
    """The comparisons that a request is about."""

    def __init__(self, program: Program, request: Request, comparisons: Iterable[Compare]) -> None:
        """Comparisons of attributes that neither the state nor this request can give never hold, so they are left out."""
        keys = set(map(str, (request.resource, *request.with_.values())))

        def has_value(term: Term) -> bool:
            declared = program.attribute(term)
            in_state = declared is not None and "state" in declared.origins
            return in_state or term.target is None or term.target.slot in keys

        comparisons = [compare for compare in comparisons if all(map(has_value, compare.terms))]
        self._theory = canonical_form(program).comparisons
        self.atoms = tuple(compares(in_order(set(comparisons))))
        self._terms = tuple(dict.fromkeys(term for compare in self.atoms for term in compare.terms))
        single = dict.fromkeys(self._single(self.atoms))
        self.single = tuple(islice((atom for atom in single if atom not in self.atoms), MAX_SINGLE))
        self._known = {*self.atoms, *self.single}

    def fewest(self, atoms: HeldSet, lacking: HeldSet = frozenset()) -> HeldSet | None:
        """Some atoms, with the comparisons that hold where as few as possible do besides; None if no values do that. Raises Undecided."""
        true, false = set(compares(atoms)), set(compares(lacking))
        if not self._known.issuperset(true) or self._theory.values(true, false) is None:
            return None
        for atom in self.atoms:
            if atom not in true | false:
                (false if self._theory.possible(true, {*false, atom}) else true).add(atom)
        return atoms | {atom for atom in self.atoms if atom in true}

    def most(self, atoms: HeldSet, lacking: HeldSet) -> Iterator[HeldSet]:
        """Some atoms that compare nothing, with as many comparisons as can hold where some do not: each that can is in one of the sets."""
        listed = [atom for atom in (*self.atoms, *self.single) if atom not in lacking]
        false, seen = set(compares(lacking)), set[HeldSet]()
        for number in range(max(1, len(listed))):
            chosen = atoms - frozenset(compares(atoms))
            for atom in (*listed[number:], *listed[:number]):
                if self._theory.possible({*compares(chosen), atom}, false):
                    chosen |= {atom}
            if chosen not in seen:
                seen.add(chosen)
                yield chosen

    def values(self, atoms: HeldSet) -> AttributeValues:
        """AttributeValues with which the comparisons among some atoms hold, and no others that the request is about. Raises Undecided."""
        true = set(compares(atoms))
        false = set(self.atoms) - true
        found = self._theory.values(true, false)
        assert found is not None
        return {term: found.get(self._theory.term(term)) for term in self._terms}

    def _single(self, comparisons: Iterable[Compare]) -> Iterator[Compare]:
        """Comparisons that say one value, or how two integers are ordered."""
        for compare in comparisons:
            constants = compare.right if isinstance(compare.right, tuple) else ()
            for term in compare.terms:
                yield from (Compare(left=term, operator="=", right=(v,)) for v in self._values(term, constants))
            if isinstance(compare.right, Term) and compare.operator in ("<", "<=", ">", ">="):
                yield from (replace(compare, operator=operator) for operator in ("<", "=", ">"))

    def _values(self, term: Term, constants: tuple[str | int | bool, ...]) -> list[str | int | bool]:
        """The values of an attribute that tell comparisons with some constants apart."""
        type_ = self._theory.type_of(term)
        match type_.type:
            case "bool":
                return [True, False]
            case "enum":
                return [*type_.values]
            case "integer":
                near = {int(constant) + step for constant in constants for step in (-1, 0, 1)}
                return [number for number in sorted(near) if type_.fits(number)]
            case "text":
                # Another one for each attribute, so that two can be present and not the same.
                return [*constants, f"other {self._terms.index(term) + 1}"]
            case _:
                return []


MADE_UP = " below"
"""The end of the names of entities that are made up for `or below`."""
MAX_MIXED = 6
"""The limit on atoms, in one way to be denied, for which both kinds of lacking are combined."""


class Callers(CallerSemantics):
    """Generates the callers for the ways to one request."""

    def __init__(
        self,
        program: Program,
        request: Request,
        ways: HeldSets,
        where: Locations | None = None,
        *,
        are_below_listed: bool = False,
        comparisons: Iterable[Compare] = (),
    ) -> None:
        """`where`: the places of entities with flat ids, if there are any.

        `are_below_listed`: for `or below`, the ways list each entity below on which a privilege is held; otherwise entities are made
        up below. `comparisons`: comparisons that callers fulfil or not, beside the condition's and the ways' own. Raises UsageError if there are too many ways, and Undecided if comparisons of attributes take too many steps.
        """
        rule = program.rules[request.resource.type, request.action]
        condition = asked_condition(program, rule, named=vocabulary(program).complete(request.resource))
        asked = set(reached_atoms(program, condition))
        growing = GrowingLocations(where or locations(program, State()))
        super().__init__(program, growing.keys)
        self.placed: dict[Entity, Entity] = {}
        """The places of made-up entities with flat ids, by their containers."""
        self.request = request
        slots = (request.resource, *request.with_.values())
        self.objects = tuple(dict.fromkeys(key for entity in slots for key in self._path_keys(entity)))
        """The keys of the request's objects and of all their ancestors."""
        below = {type_ for atom in asked if isinstance(atom, Below) for type_ in program.types_of(atom.target)}
        roots = {key for key in self.objects if key.partition(":")[0] in below and not are_below_listed}
        roots |= {atom.target.slot for way in ways for atom in way if isinstance(atom, Below)}
        made_up: list[str] = []
        for key in sorted(roots):
            for lower, container in at_or_below(program, key, MADE_UP):
                made_up.append(lower)
                entity = Entity.parse(lower)
                if container and entity.type in program.flat:
                    self.placed[entity] = Entity.parse(container)
                    growing.place(entity, self.placed[entity])
        self._everywhere = tuple(dict.fromkeys((*self.objects, *made_up)))
        """The keys of the request's objects, of what contains them, and of what is made up below."""
        known = {*self._compared(asked), *compares(chain.from_iterable(ways)), *comparisons}
        self.compared = ComparedAttributes(program, request, known)
        self.ways = tuple(way for way in self._with_places(ways) if self.compared.fewest(way) is not None)

    def _compared(self, asked: Iterable[Atom]) -> Iterator[Compare]:
        """The comparisons of the condition, about the entities of the request."""
        slots = {RESOURCE: self.request.resource, **self.request.with_}

        def keys_of(target: Target) -> list[str]:
            return [key for key in self._path_keys(slots[target.slot]) if key.partition(":")[0] == target.type]

        def key_of(target: Target) -> str | None:
            keys = keys_of(target)
            return None if not keys else keys[0] if target.level == "first" else keys[-1]

        for atom in asked:
            if isinstance(atom, Compare):
                whole = atom.several
                each = [] if whole is None else [{whole: key} for key in keys_of(whole)]
                named = (about(atom, lambda t, own=own: own.get(t) or key_of(t)) for own in each or [{}])  # type: ignore[misc]
                yield from compares(right for right in named if right is not None)

    def _with_places(self, ways: HeldSets) -> HeldSets:
        """The ways, with each entity on which something may be held that is asked for on an entity or below."""
        if not any(isinstance(atom, Below) for way in ways for atom in way):
            return ways
        found: list[HeldSet] = []
        for way in ways:
            choices = [
                self.places(atom, self._everywhere) if isinstance(atom, Below) else [atom] for atom in in_order(way)
            ]
            if len(found) + prod(map(len, choices)) > MAX_WAYS:
                raise UsageError(
                    f"`needs` of `{self.request.action} {self.request.resource}` has more than {MAX_WAYS:,} ways"
                )
            found += map(frozenset, product(*choices))
        return smallest(found)

    def all(self) -> Iterator[Caller]:
        """Every caller, each once, in an order that reads naturally."""
        seen: set[tuple[HeldSet, Denied]] = set()
        for caller in self._generate():
            key = caller.held, caller.denied
            if key not in seen:
                seen.add(key)
                yield caller

    def _generate(self) -> Iterator[Caller]:
        for way in self.ways:
            for single in (frozenset[Right](), *(frozenset({atom}) for atom in self.compared.single)):
                held = self.compared.fewest(way | single)
                if held is not None:
                    yield self._only_with(way, held)
        for way in self.ways:
            yield from self._denied_below(way)
        if frozenset() in self.ways:
            return
        yield self.caller(frozenset(), frozenset(), allowed=False, words="nothing")
        for way in self.ways:
            for atom in in_order(way):
                yield from self._without(way, atom)
        yield from self._maximal_denied()

    def caller(self, held: HeldSet, denied: Denied, *, allowed: bool, words: str) -> Caller:
        """A caller who fulfils the comparisons among the atoms held, and no others that the request is about."""
        return Caller(held, denied, allowed=allowed, words=words, values=self.compared.values(held))

    def with_only(self, atoms: HeldSet, denied: Denied) -> Caller:
        """A caller with some atoms and denials, whatever the decision then is."""
        held = self.compared.fewest(atoms)
        assert held is not None
        words = f"{set_text(atoms) or 'nothing'}{_denied_text(denied)}"
        return self.caller(held, denied, allowed=self.allowed(held, denied), words=words)

    def _only_with(self, way: HeldSet, held: HeldSet) -> Caller:
        """The caller with exactly one set; if inheritance would complete another set, that one is denied to them.

        `held`: the set, with the comparisons that hold as well.
        """
        if not self._suffices_otherwise(way, held, frozenset()):
            return self._allowed(way, held, frozenset())
        for atoms in (held, *self.by_ownership(held)):
            for others in (False, True):
                denied = self.denials(way, atoms, others=others)
                if not self._suffices_otherwise(way, atoms, denied):
                    return self._allowed(way, atoms, denied)
        return self._allowed(way, held, self.denials(way, held))

    def _suffices_otherwise(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> bool:
        return any(other != way and self.suffices(other, atoms, denied) for other in self.ways)

    def allowed(self, atoms: HeldSet, denied: Denied) -> bool:
        """Return whether some listed set holds."""
        return any(self.suffices(way, atoms, denied) for way in self.ways)

    def denials(self, way: HeldSet, atoms: HeldSet, *, others: bool = False) -> Denied:
        """The privileges of a set, denied wherever the set still suffices: mostly further down.

        `others`: the privileges of all sets as well, which one of it may imply, and whatever else it implies.
        """
        denied: Denied = frozenset()
        sets = chain.from_iterable(self.ways if others else ())
        names = {right.privilege for right in sets if isinstance(right, Has)}
        own = (self.program.privileges[right.privilege] for right in way if others and isinstance(right, Has))
        names.update(chain.from_iterable(privilege.implies for privilege in own))
        for privilege in sorted(names.union(self.deniable(way))) if self.deny_overrides else ():
            for key in self._everywhere if others else self.objects:
                extended = denied | {privilege_on(privilege, key)}
                if self.is_grantable(privilege, key) and self.suffices(way, atoms, extended):
                    denied = extended
        return denied

    def _allowed(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> Caller:
        compared = frozenset(compares(atoms - way))
        addition = f", by {set_text(atoms - way - compared)}" if atoms - way - compared else ""
        words = f"{set_text(way) or 'nothing'}{addition}{_denied_text(denied)}"
        return self.caller(
            atoms, denied, allowed=True, words=f"{words}; where {set_text(compared)}" if compared else words
        )

    def _denied_below(self, way: HeldSet) -> Iterator[Caller]:
        """Callers with one set whose privileges are denied wherever the set still suffices."""
        held = self.compared.fewest(way)
        for atoms in () if held is None else (held, *self.by_ownership(held)):
            for others in (False, True) if self.program.implies else (False,):
                denied = self.denials(way, atoms, others=others)
                if denied:
                    yield self._allowed(way, atoms, denied)

    def _without(self, way: HeldSet, atom: Right) -> Iterator[Caller]:
        """A caller who lacks one atom of a set, unless the rest still implies it or suffices."""
        rest = way - {atom}
        held = self.compared.fewest(rest, frozenset(compares([atom])))
        if held is None:
            return
        for denied in (frozenset(), self.denials(rest, held)):
            if not self.giving(atom).hold(held, denied) and not self.allowed(held, denied):
                words = f"{set_text(rest) or 'nothing'}{_denied_text(denied)}; without {right_text(atom)}"
                yield self.caller(held, denied, allowed=False, words=words)
                return

    def _maximal_denied(self) -> Iterator[Caller]:
        """Callers with everything except some atom of every set: as much as can be held without an allow."""
        everything = frozenset(self.everything(self._everywhere, self.request.resource)).union(*self.ways)
        for lacking in transversals(self.ways):
            for denied in self._denied_choices(lacking):
                giving = {atom: self.giving(atom) for atom in lacking}
                # A grant may be held above or below what is denied.
                excluded = {
                    r for atom in lacking for r in (giving[atom].firm if atom in denied else giving[atom].alone)
                }
                for held in self.compared.most(everything - excluded, lacking):
                    unequal = {atom for atom in self.compared.atoms if atom not in held}
                    lacking_text = set_text((lacking - denied) | unequal)
                    words = f"everything{f' but {lacking_text}' if lacking_text else ''}{_denied_text(denied)}"
                    yield self.caller(held, denied, allowed=False, words=words)

    def _denied_choices(self, lacking: HeldSet) -> Iterator[Denied]:
        """The privileges that are lacking because of a denial, rather than for want of a grant.

        Without a grant on an entity or above it, grants below remain; with a denial, grants above remain. So it is a
        denial at the bottom, no grant at the top, and both in between.
        """
        always_denied: set[Has] = set()
        optional: list[Has] = []
        privileges = (atom for atom in in_order(lacking) if isinstance(atom, Has))
        for atom in privileges if self.deny_overrides else ():
            above, below = self.grantable_around(atom, self._everywhere)
            if above and below and len(optional) < MAX_MIXED:
                optional.append(atom)
            elif above:
                always_denied.add(atom)
        for choice in product((False, True), repeat=len(optional)):
            yield frozenset(always_denied) | frozenset(
                atom for atom, denied in zip(optional, choice, strict=True) if denied
            )

    def _path_keys(self, entity: Entity) -> Iterator[str]:
        """The keys on the path of an entity, and of the `single` entities below it."""
        for key in self.keys(entity):
            yield key
            yield from self._singles(key)

    def _singles(self, key: str) -> Iterator[str]:
        type_, _, path = key.partition(":")
        for other in self.program.entities.values():
            if other.single and other.parent == type_:
                yield f"{other.name}:{path}"
                yield from self._singles(f"{other.name}:{path}")


def transversals(ways: HeldSets) -> HeldSets:
    """The smallest sets with an atom of each listed set: the least that a denied caller lacks."""
    found: HeldSets = (frozenset(),)
    for way in ways:
        extended: list[HeldSet] = []
        for partial in found:
            extended += [partial] if partial & way else [partial | {atom} for atom in in_order(way)]
        found = smallest(extended)[:MAX_WAYS]
    return found


def _denied_text(denied: Denied) -> str:
    return f"; denied {set_text(denied)}" if denied else ""


KEYS = (
    "name", "ask", "action", "resource", *NEEDS_CONTEXT_KEYS, "by", "all", "effects", "rule", "report", "params", "tags", "why", "source", "note",
)  # fmt: skip


def read_needs(author: Author, node: YamlNode) -> None:
    """Read the entries of `needs`. Callers share a state, since none sees what another is given, if they agree on entities' attributes."""
    placed = author.placements()
    if placed is None:
        return
    generated = CallerStates(author.program, placed)
    known: dict[Hashable, tuple[Caller, ...]] = {}
    cases_before = len(author.cases)
    for fields, span, values in author.entries(node, "needs", "an entry of `needs`", KEYS):
        _need(author, fields, span, values, generated, known)
    if len(author.cases) > cases_before:
        for state in generated.states():
            author.world(state)


def _need(
    author: Author,
    fields: Fields,
    span: Span,
    values: Values,
    generated: CallerStates,
    known: dict[Hashable, tuple[Caller, ...]],
) -> None:
    """Read one entry. `known`: the callers of earlier requests, by what they depend on."""
    if ("by" in fields) == ("all" in fields):
        author.reader.report("T006", span, "an entry of `needs` has either `by` or `all`")
        return
    ways = (
        author.held_sets.sets(fields["by"], values) if "by" in fields else author.held_sets.all(fields["all"], values)
    )
    requests = author.requests(fields, span, "somebody")
    if ways is None:
        return
    name, why, tags = author.optional(fields, "name"), author.why(fields), author.tags(fields)
    for request in author.placed(requests, generated.where, fields):
        title = name or f"{request.action} {request.resource}"
        try:
            expanded = _callers(author.program, request, ways, generated, known)
        except Undecided as error:
            advice = "say it of a shorter part, or test the row by `cases`"
            author.reader.report("T205", fields["by" if "by" in fields else "all"], str(error), advice)
            continue
        for caller in expanded:
            number, caller_request = generated.add_caller(caller, request)
            expected = author.expected(fields, caller_request, allowed=caller.allowed)
            author.cases.append(
                Case(
                    name=f"{title} with {caller.words}",
                    kind="need",
                    world=len(author.states) + number,
                    request=caller_request,
                    expected=expected,
                    span=span,
                    holds=caller.words,
                    why=why,
                    tags=tags,
                )
            )


def _callers(
    program: Program,
    request: Request,
    ways: HeldSets,
    generated: CallerStates,
    known: dict[Hashable, tuple[Caller, ...]],
) -> tuple[Caller, ...]:
    """The callers for the ways to a request, the same for every operation on its objects whose condition looks neither below them nor at attributes."""
    condition = program.rules[request.resource.type, request.action].item_condition
    plain = not any(isinstance(atom, Below | Compare) for atom in reached_atoms(program, condition))
    key = (ways, request.resource, *request.with_.items()) if plain else None
    found = known.get(key)
    if found is None:
        callers = Callers(program, request, ways, generated.where)
        found = tuple(callers.all())
        generated.placements |= {e: Placement(entity=e, parent=parent) for e, parent in callers.placed.items()}
        if plain:
            known[key] = found
    return found
