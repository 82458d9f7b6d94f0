"""The reference evaluator: the section "Meaning" of the language, in code. Every engine must agree with it.

It is deliberately simple: `EvaluationContext.holds` evaluates a condition as written, and only explanations use minimal sets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never

from privtab.base.attributes import holds
from privtab.base.effects import with_changes
from privtab.base.names import LEFT_OUT, last_name, refers_to
from privtab.base.paths import base_type, level_of, not_placed
from privtab.base.records import dataclass
from privtab.base.request import Decision, Entity, Request, roles_not_held, smallest_sets
from privtab.ir import nodes as ir
from privtab.ir.canonical import Leaf, Listing, canonical_form
from privtab.ir.formula import asked_condition, located, on_each_level, resolve_can
from privtab.ir.names import atom_words, term_text
from privtab.ir.serialise import listing, vocabulary
from privtab.state.holdings import Holdings
from privtab.state.nodes import State


def evaluate(program: ir.Program, state: State, request: Request) -> Decision:
    """Decide one request. Raises InvalidRequest if it uses a name that the policy does not know."""
    return Reference(program, state).decide(request)


class Reference:
    """The reference engine over one program and one state.

    Example:
        Reference(program, state).decide(request).allowed
    """

    def __init__(self, program: ir.Program, state: State, revision: str | None = None) -> None:
        self.program = program
        self.holdings = Holdings(program, state)
        self.vocabulary = vocabulary(program)
        self.revision = revision

    def decide(self, request: Request) -> Decision:
        """Decide one request. Raises InvalidRequest if it uses a name that the policy does not know."""
        explanation = self.explanation(request)
        return Decision(allowed=explanation.allowed, context=explanation.context())

    def explanation(self, request: Request) -> Explanation:
        """Decide one request and explain the decision. Raises InvalidRequest as `decide` does."""
        self.vocabulary.check(request)
        evaluation = EvaluationContext(self, request)
        rule = self.program.rules[request.resource.type, request.action]
        condition = evaluation.condition(rule)
        types = {slot.name: evaluation.types[slot.name] for slot in rule.withs}
        named = ir.RESOURCE in evaluation.complete
        minimal_sets = listing(self.program, rule, named=named, flags=request.flags, types=types)
        sets = canonical_form(self.program).located(minimal_sets.sets, evaluation.levels)
        allowed = not evaluation.unheld and evaluation.holds(condition)
        return Explanation(evaluation, rule, minimal_sets._replace(sets=sets), allowed=allowed)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an atom holds: on which entity, unless it concerns the caller alone, and through which principal."""

    on: str | None
    through: str


SourceKind: TypeAlias = Literal[
    "owner", "grant", "default", "member", "group", "role", "self", "service admin", "attribute"
]
_SECOND: Collection[SourceKind] = ("grant", "default", "group")
"""The kinds that count as the reason only where there is none of the others."""


class Source(NamedTuple):
    """The part of the state that makes an atom hold: rows of one kind about one entity, and the principals of the caller that they name.

    >>> Source("owner", "table:a", ("user:ann",)).privilege
    ''
    """

    kind: SourceKind
    """`default`: by the declaration of roles. `group`, `role`: those of the caller that the entity stands for."""
    on: str | None
    """The entity that reasons name; None if the atom concerns the caller alone."""
    principals: Collection[str]
    key: str = ""
    """The entity of the rows."""
    within: tuple[str, ...] = ()
    """The keys within which roles of the caller count for it, besides those that are held everywhere."""
    privilege: str = ""


class EvaluationContext:
    """One request, and what its caller holds.

    Example:
        EvaluationContext(Reference(program, state), request).holds(rule.item_condition)
    """

    def __init__(self, reference: Reference, request: Request) -> None:
        self.program = reference.program
        self.holdings = reference.holdings
        self.vocabulary = reference.vocabulary
        self.revision = reference.revision
        self.user = request.user
        self.flags = request.flags
        self.attributes = request.attributes
        groups = request.groups if "request" in self.program.semantics.groups else ()
        self.request_groups = frozenset(groups)
        """The groups that the request brings, if the policy takes any from it."""
        self.principals, self.scoped, self.roles, self.groups = self.holdings.of_user(request.user, groups)
        self.narrow(request.active_roles, groups)
        rule = self.program.rules[request.resource.type, request.action]
        slots = [slot.name for slot in rule.withs]
        entities = request.objects(slots)
        self.types: Mapping[str, str] = {ir.RESOURCE: request.resource.type, **request.types(slots)}
        self.given = self.given_of(entities)
        self.complete = {slot for slot, entity in entities.items() if reference.vocabulary.complete(entity)}
        self.locate(entities)

    def locate(self, objects: Mapping[str, Entity]) -> None:
        """Find the keys on the path of each object, none for those in `unplaced` entities: such requests are denied."""
        where = self.holdings.locations
        self._paths: dict[ir.Target, tuple[str, ...]] = {}
        self.keys = {slot: where.find(entity) or [] for slot, entity in objects.items()}
        self.levels = {slot: where.levels(entity, self.keys[slot]) for slot, entity in objects.items()}
        unplaced = {where.unplaced(entity) for entity in objects.values()} - {None}
        self.unplaced = tuple(sorted(str(key) for key in unplaced))

    def narrow(self, active_roles: Collection[str] | None, groups: Collection[str] = ()) -> None:
        """Let only some roles of the caller count for what is allowed, if the policy lets requests say so; None: all of them."""
        self.unheld: tuple[str, ...] = ()
        """The active roles that the caller does not hold; if there are any, the request is denied."""
        self.active: tuple[frozenset[str], tuple[tuple[str, str], ...]] | None = None
        """`principals` and `scoped` that count for what is allowed; None: all of them."""
        self.active_roles: tuple[str, ...] | None = None
        """The names that the request gives; None: every role is active."""
        if active_roles is not None and self.program.semantics.active_roles == "request":
            self.active_roles = tuple(active_roles)
            self.unheld = tuple(sorted(set(active_roles) - self.roles))
            self.active = self.holdings.narrowed(self.user, groups, active_roles)

    def unheld_error(self) -> dict[str, str] | None:
        """The error of a request with active roles that the caller does not hold; None without such roles."""
        return roles_not_held(self.user, self.unheld) if self.unheld else None

    def given_of(self, objects: Mapping[str, Entity]) -> Mapping[tuple[str, str], object]:
        """The attributes that the request gives of its objects, by key and name."""
        return {
            (str(entity), name): value
            for slot, entity in objects.items()
            for name, value in self.attributes.of_slot(slot).items()
        }

    def condition(self, rule: ir.Rule) -> ir.Formula:
        """The condition for the request; if that omits the last name of its resource, without the parts that cannot hold."""
        if self.unplaced:
            return ir.NEVER
        return asked_condition(self.program, rule, named=ir.RESOURCE in self.complete)

    def holds(self, formula: ir.Formula, results: dict[ir.Can, bool] | None = None) -> bool:
        """Return whether a condition holds, evaluated as written. `results`: the results for each `can` in it, which is evaluated once."""
        results = {} if results is None else results
        match formula:
            case ir.And():
                return all(self.holds(part, results) for part in formula.parts)
            case ir.Or():
                return any(self.holds(part, results) for part in formula.parts)
            case ir.When():
                return formula.flag not in self.flags or self.holds(formula.body, results)
            case ir.Can():
                if formula not in results:
                    results[formula] = self.holds(resolve_can(self.program, formula), results)
                return results[formula]
            case ir.ByType():
                body = dict(formula.cases).get(self.types.get(formula.slot, LEFT_OUT))
                return body is not None and self.holds(body, results)
            case ir.Atomic() if (whole := formula.several) is not None:
                join = any if whole.level == "any" else all
                return join(map(self.holds, on_each_level(self.program, formula, self.levels.get(whole.slot, 1))))
            case ir.Atomic():
                return next(self.sources(formula), None) is not None
            case _:
                assert_never(formula)

    def why(self, atom: ir.Atom) -> Reason | None:
        """Why an atom holds, or None if it does not."""
        ranked = groupby(self.sources(atom), key=lambda source: (source.kind in _SECOND, source.on))
        for (_, on), sources in ranked:
            found = list(sources)
            through = min(principal for source in found for principal in source.principals)
            holds_as_owner = found[0].kind == "owner" and isinstance(atom, ir.Has | ir.HasBelow)
            return Reason(on, f"owner {through}" if holds_as_owner else through)
        return None

    def sources(self, atom: ir.Atom) -> Iterator[Source]:
        """Through what an atom holds, in the order of preference for reports; nothing if it does not hold."""
        match atom:
            case ir.Has():
                path = self.path(atom.target)
                yield from self.ownerships(atom.privilege, path)
                if not self.denials_on(atom.privilege, path):
                    yield from self.grants(atom.privilege, path)
            case ir.Owner():
                yield from self.owned(self.path(atom.target)[-1:])
            case ir.Member() | ir.Holds():
                yield from self._standing_for(atom)
            case ir.Self():
                if self.is_self(atom.target):
                    yield Source("self", None, (f"user:{self.user}",))
            case ir.ServiceAdmin():
                if self.user in self.holdings.service_admins:
                    yield Source("service admin", None, (f"user:{self.user}",))
            case ir.HasBelow() | ir.OwnsBelow():
                yield from (source._replace(on=self.path(atom.target)[-1]) for source in self._below(atom))
            case ir.Compare():
                if self.compares(atom):
                    yield Source("attribute", None, ("attribute",))
            case _:
                assert_never(atom)

    def compares(self, compare: ir.Compare, user: str | None = None) -> bool:
        """Return whether both values exist and stand in the relation, for the caller or another user."""
        return fulfilled(compare, lambda term: self.value(term, user))

    def value(self, term: ir.Term, user: str | None = None) -> object:
        """The value of an attribute, of the caller or of another user; None if it is absent."""
        sent, holder = self.sent(term), self.holder(term, user)
        return self.holdings.attribute(*holder, term.attribute) if sent is None and holder is not None else sent

    def sent(self, term: ir.Term) -> object:
        """The value that the request gives an attribute; None if it gives none."""
        match term.kind:
            case "user":
                return self.attributes.user.get(term.attribute)
            case "request":
                default = self.program.attributes.request[term.attribute].default
                return self.attributes.request.get(term.attribute, default)
            case "entity":
                path = self.path(term.target) if term.target is not None else ()
                return self.given.get((path[-1], term.attribute)) if path else None
            case _:
                assert_never(term.kind)

    def holder(self, term: ir.Term, user: str | None = None) -> tuple[Literal["user", "entity"], str] | None:
        """The owner of an attribute's value in the state: the caller or another user, or an entity; None without an owner."""
        if term.kind == "user":
            return "user", user or self.user
        path = self.path(term.target) if term.target is not None else ()
        return ("entity", path[-1]) if path else None

    def path(self, target: ir.Target) -> tuple[str, ...]:
        """The keys from the root to the target; empty if the request does not name the target."""
        found = self._paths.get(target)
        if found is None:
            found = self._paths[target] = self._path(target)
        return found

    def _path(self, target: ir.Target) -> tuple[str, ...]:
        if target.slot not in self.keys:
            return ()  # the request leaves out the object
        nested = self.program.nested_on
        if nested and not level_of(target.type):
            # `any` and `every` mean several entities; their targets are located before.
            [target] = self.located(target)
        keys, levels = self.keys[target.slot], self.levels[target.slot]
        type_ = base_type(target.type) if nested else target.type
        anchored, single = self.program.anchor(ir.Target(slot=target.slot, type=type_))
        index = anchored
        if type_ in nested:
            # The type that nests takes as many keys as there are levels.
            index += (level_of(target.type) if type_ == nested[type_] else levels) - 1
        if index >= len(keys):
            return ()
        chain_below = self.program.chain(type_)[anchored + 1 :] if single else ()
        return (*keys[: index + 1], *(f"{name}:{keys[index].partition(':')[2]}" for name in chain_below))

    def located(self, target: ir.Target) -> tuple[ir.Target, ...]:
        """The targets of single levels that a target means for the request."""
        return located(self.program, target, self.levels[target.slot])

    def principals_within(self, path: tuple[str, ...]) -> frozenset[str]:
        """The caller's principals for an object: those that count everywhere, and the roles whose scope contains it."""
        return self.principals | {role for role, scope in self.scoped if scope in path}

    def active_within(self, path: tuple[str, ...]) -> frozenset[str]:
        """As `principals_within`, of what counts for what is allowed."""
        principals, scoped = self.active or (self.principals, self.scoped)
        return principals | {role for role, scope in scoped if scope in path}

    def ownerships(self, privilege: str, path: tuple[str, ...]) -> Iterator[Source]:
        """The ownerships that give a privilege on the last of the keys, nearest first."""
        owner = self.program.semantics.owner
        if owner is not None and privilege in owner.holds:
            yield from self.owned(reversed(self.relevant_keys(privilege, path)))

    def owned(self, keys: Iterable[str]) -> Iterator[Source]:
        """The ownership of entities."""
        for key in keys:
            if owners := self.owners(key):
                yield Source("owner", key, owners, key)

    def _below(self, atom: ir.Below) -> Iterator[Source]:
        """The rights held on an object or on an entity below it, the owner's first."""
        paths = self.paths_from(atom.target)
        if not isinstance(atom, ir.HasBelow):
            yield from self.owned(path[-1] for path in paths)
            return
        yield from (source for path in paths for source in self.ownerships(atom.privilege, path))
        not_denied = (path for path in paths if not self.denials_on(atom.privilege, path))
        yield from (source for path in not_denied for source in self.grants(atom.privilege, path))

    def paths_from(self, target: ir.Target) -> list[tuple[str, ...]]:
        """The keys from the root to an object and to each entity below it that a row of the state names; none if it is not named."""
        path = self.path(target)
        if not path:
            return []
        named = (self.holdings.locations.keys(Entity.parse(key)) for key in self.holdings.named())
        return [path, *(tuple(keys) for keys in named if path[-1] in keys[:-1])]

    def owners(self, key: str) -> frozenset[str]:
        """The caller's principals that own an entity, as far as ownership through them counts."""
        owners = self.holdings.owners(key)
        if self.active is None:
            return owners & self.principals
        return owners & (self.active[0] | self.principals if self.program.semantics.inactive_owners else self.active[0])

    def relevant_keys(self, privilege: str, path: tuple[str, ...]) -> tuple[str, ...]:
        """The keys whose grants and denials of a privilege count for the last of them."""
        return path if self.program.inherits(privilege) else path[-1:]

    def grants(self, privilege: str, path: tuple[str, ...]) -> Iterator[Source]:
        """The grants of a privilege on the last of the keys, nearest first: by rows of the state and by default grants of roles."""
        principals = self.active_within(path)
        for key in reversed(self.relevant_keys(privilege, path)):
            if allowed := self.holdings.grants_on(privilege, key)[0] & principals:
                yield Source("grant", key, allowed, key, path, privilege)
            if roles := self.default_roles(privilege, path, key):
                yield Source("default", key, roles, key, path[: path.index(key) + 1], privilege)

    def granted(self, privilege: str, path: tuple[str, ...]) -> Source | None:
        """The nearest grant of a privilege, denied or not."""
        return next(self.grants(privilege, path), None)

    def default_roles(self, privilege: str, path: tuple[str, ...], key: str) -> frozenset[str]:
        """The caller's declared roles whose default grants give the privilege on `key`, an object on `path`."""
        type_ = key.partition(":")[0]
        roles = {
            f"role:{role.name}" for role in self.program.roles.values() if privilege in dict(role.grants).get(type_, ())
        }
        return frozenset(roles & self.active_within(path[: path.index(key) + 1])) if roles else frozenset()

    def denials(self, privilege: str, target: ir.Target) -> tuple[tuple[str, str], ...]:
        """The denials of a privilege that apply on an object: (key, principal)."""
        return self.denials_on(privilege, self.path(target))

    def denials_on(self, privilege: str, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """The denials of a privilege that apply on the last of the keys: (key, principal)."""
        if self.program.semantics.deny != "overrides":
            return ()
        principals = self.principals_within(path)
        return tuple(
            (key, principal)
            for key in self.relevant_keys(privilege, path)
            for principal in sorted(self.holdings.grants_on(privilege, key)[1] & principals)
        )

    def is_self(self, target: ir.Target) -> bool:
        """Return whether an object is the caller."""
        path = self.path(target)
        return bool(path) and last_name(path[-1].partition(":")[2]) == self.user

    def _standing_for(self, atom: ir.Member | ir.Holds) -> Iterator[Source]:
        """The ways in which the caller belongs to an object or holds it: through a row of members, or as one of their groups or roles."""
        path = self.path(atom.target)
        if not path:
            return
        kind: SourceKind = "role" if isinstance(atom, ir.Holds) else "group"
        if isinstance(atom, ir.Member):
            if self.holdings.is_member(self.user, path[-1]):
                yield Source("member", path[-1], (f"user:{self.user}",))
            entities = self.program.entities
            type_ = atom.target.type if atom.target.type in entities else base_type(atom.target.type)
            if entities[type_].principal != "group":
                return
        names = self.roles if isinstance(atom, ir.Holds) else self.groups
        if named := [f"{kind}:{name}" for name in names if refers_to(name, path[-1].partition(":")[2])]:
            yield Source(kind, path[-1], named)

    def reasons(self, sets: Iterable[Collection[Leaf]]) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        first = next((atoms for atoms in sets if all(map(self.holds, atoms))), ())
        return [self._reason(atom) for atom in first]

    def _reason(self, atom: Leaf) -> dict[str, str]:
        assert not isinstance(atom, ir.ByType)
        reason = self.why(atom)
        assert reason is not None
        on = {} if reason.on is None else {"on": reason.on}
        return {"atom": self.text(atom), **on, "through": reason.through}

    def text(self, atom: Leaf) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        return atom_words(atom, self.key)

    def term_text(self, term: ir.Term) -> str:
        """An attribute with the request's entities: `class (table:m/c/s/t)`, `user.department`."""
        return term_text(term, self.key)

    def effect_text(self, effect: ir.Effect) -> str:
        """An effect with the request's entities: `grant ALL (namespace:i/n)`, `become owner (catalog:m/c)`."""
        return f"{effect.text} ({self.key(effect.target)})"

    def key(self, target: ir.Target) -> str:
        """The target's key, or its type alone if the request does not name it."""
        path = self.path(target)
        return path[-1] if path else base_type(target.type)


def fulfilled(compare: ir.Compare, value_of: Callable[[ir.Term], object]) -> bool:
    """Return whether both values of a comparison exist and stand in the relation."""
    left, constants = value_of(compare.left), compare.right
    if isinstance(constants, ir.Term):
        right = value_of(constants)
    else:  # `=`, `<` and so on have one constant
        right = constants if compare.operator == "in" else constants[0]
    return left is not None and right is not None and holds(left, compare.operator, right)


class Explanation:
    """A decision and its explanation, the `context` of the answer.

    Example:
        Reference(program, state).explanation(request).context()["missing"]
    """

    def __init__(self, evaluation: EvaluationContext, rule: ir.Rule, listing: Listing, *, allowed: bool) -> None:
        self.evaluation = evaluation
        self.rule = rule
        self.sets, self.complete = listing
        self.allowed = allowed

    def context(self) -> dict[str, Any]:
        """Rule, source and revision; reasons and effects if allowed, what is missing if denied."""
        unplaced = self.evaluation.unplaced
        context: dict[str, Any] = {
            "rule": self.rule.id,
            "missing": [] if self.allowed or self.evaluation.unheld or unplaced else self.missing(),
            "reasons": self.evaluation.reasons(self.sets) if self.allowed else [],
            "effects": list(map(self.evaluation.effect_text, self.rule.effects)) if self.allowed else [],
            "source": self.rule.source_text,
        }
        if unplaced:
            context["error"] = not_placed(unplaced)
        elif (error := self.evaluation.unheld_error()) is not None:
            context["error"] = error
        if not self.complete and not unplaced:
            context["minimal_sets_complete"] = False
        if self.evaluation.revision is not None:
            context["revision"] = self.evaluation.revision
        return with_changes(context, self.evaluation.user, self.evaluation.active_roles)

    def missing(self) -> list[list[str]]:
        """The smallest sets of atoms that would turn a denial into an allow, smallest first; denials to remove are listed as such."""
        return smallest_sets([text for atom in atoms for text in self._missing_of(atom)] for atoms in self.sets)

    def _missing_of(self, atom: Leaf) -> list[str]:
        evaluation = self.evaluation
        assert not isinstance(atom, ir.ByType)
        if evaluation.holds(atom):
            return []
        if not isinstance(atom, ir.Has):
            return [evaluation.text(atom)]
        denied = [
            f"deny {atom.privilege} ({key}) to {principal}"
            for key, principal in evaluation.denials(atom.privilege, atom.target)
        ]
        is_granted = evaluation.granted(atom.privilege, evaluation.path(atom.target)) is not None
        return denied if is_granted else [evaluation.text(atom), *denied]
