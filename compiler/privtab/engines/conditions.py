"""Conditions from the program's JSON: read for one form of request.

Comparisons of attributes are over what a request gives and what the state holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, assert_never, cast

from privtab.base.attributes import Attributes, GivenAttributes, Operator, holds
from privtab.base.names import quoted_privilege
from privtab.base.paths import Chains, Level, at_level, base_type, located, shapes_of
from privtab.base.records import dataclass
from privtab.base.request import Request
from privtab.engines.index import Index


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute of the user, of the request (`of`), or of the entity of a type on a slot's path."""

    of: str
    attribute: str
    slot: str = ""
    type: str = ""
    held: bool = False
    """Whether the state may give the value."""
    default: Any = None
    """The value where the request gives none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two attributes, or one and constants, and the relation between them."""

    left: Operand
    operator: Operator
    right: Operand | tuple[Any, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The attributes."""
        return (self.left, self.right) if isinstance(self.right, Operand) else (self.left,)

    def holds(self, value: Callable[[Operand], object]) -> bool:
        """Whether both values exist and stand in the relation; `value` returns that of an attribute, or None."""
        left = value(self.left)
        if left is None:
            return False
        if not isinstance(self.right, Operand):
            # `=`, `<` and so on have one constant.
            return left in self.right if self.operator == "in" else holds(left, self.operator, self.right[0])
        right = value(self.right)
        return right is not None and holds(left, self.operator, right)


def operand(value: Mapping[str, Any], slot: str, declared: Attributes) -> Operand:
    """Read an operand of the program's JSON; `slot` is that of the resource of its condition."""
    of, name = value["of"], value["attribute"]
    attribute = declared.of(of)[name]
    from_state = "state" in attribute.origins
    if of != "entity":
        return Operand(of, name, held=from_state, default=attribute.default)
    return Operand(of, name, value["slot"] or slot, value["type"], from_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestValues:
    """The attributes that a request gives, and those that the state has."""

    given: GivenAttributes = GivenAttributes.NONE
    entities: Mapping[tuple[str, str], object] = field(default_factory=dict)
    """Of its objects, by key and name."""
    of_user: Mapping[str, object] = field(default_factory=dict)
    """Of the user in the state."""
    held: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Of entities in the state, by key."""

    @classmethod
    def of(cls, request: Request, slots: Sequence[str], index: Index) -> RequestValues:
        """Those of a request for an operation with these `with` objects."""
        of_user, of_entities = index.user_attributes.get(request.user, _NOTHING), index.entity_attributes
        if not request.attributes:
            return cls(of_user=of_user, held=of_entities) if of_user or of_entities else NO_VALUES
        entities = {
            (str(entity), name): value
            for slot, entity in request.objects(slots).items()
            for name, value in request.attributes.of_slot(slot).items()
        }
        return cls(given=request.attributes, entities=entities, of_user=of_user, held=of_entities)

    def value(self, operand: Operand, path: str | None) -> object:
        """The value of an attribute, None if it is absent; `path` is that of its entity, None if the request does not name it."""
        name = operand.attribute
        if operand.of == "request":
            return self.given.request.get(name, operand.default)
        if operand.of == "user":
            from_request, from_state = self.given.user.get(name), self.of_user
        elif path is None:
            return None
        else:
            key = f"{base_type(operand.type)}:{path}"
            from_request, from_state = self.entities.get((key, name)), self.held.get(key, _NOTHING)
        return from_state.get(name) if from_request is None and operand.held else from_request


_NOTHING: Mapping[str, object] = {}
NO_VALUES = RequestValues()


RESOURCE = ""
"""The slot of the request's resource; other slots are the names of its `with` objects."""

AtomWord: TypeAlias = Literal[
    "has", "owner", "member", "self", "holds", "service_admin", "has_below", "owns_below", "compare"
]
"""The kind of an atom, as in the JSON of a program."""


T = TypeVar("T")


class _Part:
    """What every condition can do, be it an atom or a combination."""

    __slots__ = ()

    def places(self) -> Mapping[Condition, int]:
        """In how many places of the condition each part stands, itself last. What is in a part is counted once, and comes before it."""
        found: dict[Condition, int] = {}

        def visit(part: Condition) -> None:
            if part not in found and not isinstance(part, Atom):
                for inner in part.parts:
                    visit(inner)
            found[part] = found.get(part, 0) + 1

        visit(cast("Condition", self))
        return found

    @property
    def always(self) -> bool:
        """Whether the condition holds for everybody."""
        return self == ALWAYS_TRUE

    def atoms(self) -> list[Atom]:
        """Every atom in the condition."""
        return [part for part in self.places() if isinstance(part, Atom)]

    def fold(
        self, of_atom: Callable[[Atom], T], all_of: Callable[[Iterable[T]], T], any_of: Callable[[Iterable[T]], T]
    ) -> T:
        """The value of the condition, from the values of its atoms and how the values of parts are combined; of each part once."""
        known: dict[Condition, T] = {}
        for part in self.places():
            match part:
                case Atom():
                    known[part] = of_atom(part)
                case AllOf():
                    known[part] = all_of(map(known.__getitem__, part.parts))
                case AnyOf():
                    known[part] = any_of(map(known.__getitem__, part.parts))
                case _:
                    assert_never(part)
        return known[cast("Condition", self)]


@dataclass(frozen=True, slots=True)
class Atom(_Part):
    """An atom: what may hold for a caller about the object of a type on a slot's path.

    Example: `[atom.kind for atom in plan.condition.atoms()]`.
    """

    kind: AtomWord
    slot: str = RESOURCE
    type: str = ""
    privilege: str = ""
    comparison: Comparison | None = None


@dataclass(frozen=True)
class _Combined(_Part):
    """Several parts. What `can` asks about is one object wherever it stands, so its hash is worked out once."""

    parts: tuple[Condition, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.parts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.parts,)  # hashes of texts differ between processes


class AllOf(_Combined):
    """Every part holds."""

    kind: ClassVar[Literal["all"]] = "all"


class AnyOf(_Combined):
    """At least one part holds."""

    kind: ClassVar[Literal["any"]] = "any"


Condition: TypeAlias = Atom | AllOf | AnyOf
"""A condition of a rule: `size = condition.fold(lambda atom: 1, sum, sum)`."""

ALWAYS_TRUE = AllOf()
"""The condition that always holds."""
NEVER = AnyOf()
LocatedSets: TypeAlias = tuple[Sequence[Mapping[str, Any]], Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """What a condition depends on besides atoms: the flags set, the types of `with` objects, whether the last name is given."""

    flags: frozenset[str] = frozenset()
    types: Mapping[str, str]
    """By slot, including the resource's."""
    named: bool = True
    levels: Mapping[str, int] = field(default_factory=dict)
    """By slot, the number of levels on the path of its object, if a type on it nests."""
    attributes: bool = False
    """Whether the request gives any attributes; without them only values in the state are compared."""
    known: dict[tuple[str, str, str], Condition] = field(default_factory=dict, compare=False, repr=False)
    """By type, operation and slot, what conditions of this shape mean that `can` asks about."""


class ConditionReader:
    """Reads conditions of one program."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.rules: Mapping[str, Mapping[str, Any]] = program["rules"]
        self.shapes = shapes_of(program["entities"])
        """The shape of the paths of each type."""
        self.chains = Chains(self.shapes)
        """For each type, the types on its path from the root to itself, each with the number of names of its path."""
        self.nested = frozenset(name for name, shape in self.shapes.items() if shape.nested is not None)
        """The types on whose paths a type nests."""
        self.flat = any(shape.flat is not None for shape in self.shapes.values())
        """Whether some ids are flat, so that the state tells on which path an entity lies."""
        self._parents: dict[str, str | None] = {name: e["parent"] for name, e in program["entities"].items()}
        self.attributes = Attributes.from_json(program.get("attributes", {}))
        self.principal: dict[str, str | None] = {n: e["principal"] for n, e in program["entities"].items()}

    def depth(self, type_: str) -> int:
        """The number of names in the path of an entity of a type."""
        return self.chains[type_][-1][1]

    def located(self, rule: Mapping[str, Any], form: RequestShape, sets: Sequence[Sequence[int]]) -> LocatedSets:
        """The atoms of a rule's minimal sets with targets of single levels, and the sets as numbers of these.

        A set with `any` becomes one for each level, all of whose `any` are at the same distance from the nearest.
        """
        atoms: list[Mapping[str, Any]] = []
        numbers: dict[tuple[int | str, ...], int] = {}
        found: dict[tuple[int, ...], None] = {}
        for set_ in sets:
            listed = [(number, rule["atoms"][number]) for number in set_]
            places = [place for _, atom in listed for place in _places(atom)]
            choices = [form.levels[place["slot"]] for place in places if place.get("level") == "any"]
            for distance in range(max(choices, default=1)):
                row: list[int] = []
                for number, atom in listed:
                    for place in self._located_atom(atom, form, distance):
                        key = (number, *(part.get("type", "") for part in _places(place)))
                        if key not in numbers:
                            numbers[key] = len(atoms)
                            atoms.append(place)
                        row.append(numbers[key])
                found[tuple(row)] = None
        return atoms, list(found)

    def _located_atom(self, atom: Mapping[str, Any], form: RequestShape, distance: int) -> list[Mapping[str, Any]]:
        if atom.get("kind") == "compare":
            # One of both at most means several levels.
            sides = product(*(self._located_atom(atom[side], form, distance) for side in ("left", "right")))
            return [{**atom, "left": left, "right": right} for left, right in sides]
        type_ = atom.get("type")
        if type_ not in self.nested:
            return [atom]
        level = atom.get("level", "nearest")
        types = self.targets(type_, level, atom["slot"], form)
        if level == "any":
            types = (types[min(distance, len(types) - 1)],)
        return [{**atom, "type": name} for name in types]

    def atom(self, atom: Mapping[str, Any]) -> Atom:
        """Read an atom of a minimal set, with a target of a single level."""
        if "left" not in atom:
            return Atom(atom["kind"], atom.get("slot", RESOURCE), atom.get("type", ""), atom.get("privilege", ""))
        left, right = operand(atom["left"], RESOURCE, self.attributes), atom["right"]
        compared = tuple(right["constants"]) if "constants" in right else operand(right, RESOURCE, self.attributes)
        return Atom("compare", comparison=Comparison(left, atom["operator"], compared))

    def place(self, target: Mapping[str, Any], form: RequestShape) -> Mapping[str, Any]:
        """The target of an effect with a type of a single level."""
        return self._located_atom(target, form, 0)[0]

    def condition(self, type_: str, operation: str, form: RequestShape) -> Condition:
        """The condition for a request of this form."""
        return self._of_rule(type_, operation, RESOURCE, form, named=form.named)

    def _of_rule(self, type_: str, operation: str, slot: str, form: RequestShape, *, named: bool) -> Condition:
        rule = self.rules[type_][operation]
        parts = [rule["call"]] if rule["each"] is None or not named else [rule["call"], rule["each"]]
        return _all(self._read(part, slot, form) for part in parts)

    def _read(self, formula: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        """Read a formula; `slot` is that of its resource."""
        ((name, value),) = formula.items()
        match name:
            case "and":
                return _all(self._read(part, slot, form) for part in value)
            case "or":
                return _any(self._read(part, slot, form) for part in value)
            case "when":
                return self._read(value["body"], slot, form) if value["flag"] in form.flags else ALWAYS_TRUE
            case "can":
                return self._can(value, value["slot"] or slot, form)
            case "by_type":
                case_ = value["cases"].get(form.types[value["slot"] or slot])
                return NEVER if case_ is None else self._read(case_, slot, form)
            case "service_admin":
                return Atom("service_admin")
            case "has_below":
                return _any([self._atom("has", value, slot, form), self._atom("has_below", value, slot, form)])
            case "owns_below":
                return _any([self._atom("owner", value, slot, form), self._atom("owns_below", value, slot, form)])
            case "compare":
                return self._compare(value, slot, form)
            case "has" | "owner" | "member" | "self" | "holds":
                return self._atom(name, value, slot, form)
            case _:
                raise ValueError(f"`{name}` is not a condition")

    def _compare(self, value: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        left, right, operator = value["left"], value["right"], value["operator"]
        rights: list[Any] = [tuple(right)] if isinstance(right, list) else self.operands(right, slot, form)
        join = _any if "any" in (left.get("level"), isinstance(right, Mapping) and right.get("level")) else _all
        lefts = self.operands(left, slot, form)
        return join(self._compare_at(Comparison(one, operator, other), form) for one, other in product(lefts, rights))

    def _compare_at(self, compared: Comparison, form: RequestShape) -> Condition:
        unnamed = any(term.of == "entity" and self.unnamed(term.type, term.slot, form) for term in compared.operands)
        # Where requests give no attributes, the state or a default may.
        possible = form.attributes or all(term.held or term.default is not None for term in compared.operands)
        return Atom("compare", comparison=compared) if possible and not unnamed else NEVER

    def operands(self, value: Mapping[str, Any], slot: str, form: RequestShape) -> list[Operand]:
        """An attribute, of each level of a type that nests if it is of several."""
        found = operand(value, slot, self.attributes)
        if found.type not in self.nested:
            return [found]
        types = self.targets(found.type, value.get("level", "nearest"), found.slot, form)
        return [replace(found, type=type_) for type_ in types]

    def _can(self, value: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        key = value["type"], value["operation"], slot
        if key not in form.known:
            form.known[key] = self._of_rule(*key, form, named=True)
        return form.known[key]

    def _atom(self, kind: AtomWord, value: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        slot, type_ = value["slot"] or slot, value["type"]
        if type_ in self.nested:
            level = value.get("level", "nearest")
            join = _any if level == "any" else _all
            types = self.targets(type_, level, slot, form)
            return join(self._atom_at(kind, value, slot, name, form) for name in types)
        return self._atom_at(kind, value, slot, type_, form)

    def _atom_at(
        self, kind: AtomWord, value: Mapping[str, Any], slot: str, type_: str, form: RequestShape
    ) -> Condition:
        return NEVER if self.unnamed(type_, slot, form) else Atom(kind, slot, type_, value.get("privilege", ""))

    def targets(self, type_: str, level: Level, slot: str, form: RequestShape) -> tuple[str, ...]:
        """The types of single levels that a target of a type that nests, or lies below one, means in such a request."""
        return located(type_, level, form.levels[slot], self._parents[type_])

    def unnamed(self, type_: str, slot: str, form: RequestShape) -> bool:
        """Whether such a request leaves out the name of the entity of a type on a slot's path."""
        if slot != RESOURCE or form.named:
            return False
        own = form.types[RESOURCE]
        return self.depth(type_) >= self.depth(at_level(own, form.levels[RESOURCE]) if own in self.nested else own)


def _all(parts: Iterable[Condition]) -> Condition:
    return _joined(AllOf, NEVER, parts)


def _any(parts: Iterable[Condition]) -> Condition:
    return _joined(AnyOf, ALWAYS_TRUE, parts)


def _joined(kind: type[AllOf | AnyOf], decisive: Condition, parts: Iterable[Condition]) -> Condition:
    """Parts together, each once, those of parts of the same kind among them; `decisive`: the one that tells the value alone."""
    flat: dict[Condition, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, kind) else (part,):
            flat[inner] = None
    return decisive if decisive in flat else next(iter(flat)) if len(flat) == 1 else kind(tuple(flat))


def words(atom: Mapping[str, Any], place: Callable[[Mapping[str, Any]], str]) -> str:
    """The text of an atom of a minimal set, as `ir.names.atom_words`; `place` returns the text of a target."""
    kind = atom["kind"]
    if kind in ("self", "service_admin"):
        return str(kind.replace("_", " "))
    if kind == "compare":
        left, right = (_operand_words(atom[side], place) for side in ("left", "right"))
        return f"{right} in {left}" if atom["operator"] == "contains" else f"{left} {atom['operator']} {right}"
    what = quoted_privilege(atom["privilege"]) if "privilege" in atom else "owner" if kind == "owns_below" else kind
    return f"{what} ({place(atom)}{' or below' if kind.endswith('_below') else ''})"


def _operand_words(operand: Mapping[str, Any], place: Callable[[Mapping[str, Any]], str]) -> str:
    if "constants" in operand:
        return str(operand["text"])
    of, name = operand["of"], operand["attribute"]
    return f"{name} ({place(operand)})" if of == "entity" else f"{of}.{name}"


def _places(atom: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What of an atom's JSON may have a target: itself, and the sides of a comparison."""
    return atom, atom.get("left", {}), atom.get("right", {})


# --- conditions compiled to closures over the bits of atoms ---


def closure_of(condition: Condition, bits: Mapping[Condition, int], free: int) -> Callable[[int], bool]:
    """Compile a condition to a function of the bits of all atoms.

    `free`: a bit above those of atoms. From there on, parts that stand in several places have bits, too, and are worked out first.
    """
    places = condition.places()
    shared = [part for part, count in places.items() if count > 1 and not isinstance(part, Atom)]
    known_bits = dict(bits)
    known_bits.update((part, free << number) for number, part in enumerate(shared))
    steps = [(known_bits[part], _compiled(part, known_bits)) for part in shared]
    whole = _compiled(condition, known_bits)
    if not steps:
        return whole

    def decide(known: int) -> bool:
        for bit, is_met in steps:
            if is_met(known):
                known |= bit
        return whole(known)

    return decide


def _compiled(condition: Condition, bits: Mapping[Condition, int]) -> Callable[[int], bool]:
    match condition:
        case Atom():
            fact_bit = bits[condition]
            return lambda known: known & fact_bit != 0
        case AllOf():
            needed, rest = _split(condition.parts, bits)
            if not rest:
                return lambda known: known & needed == needed
            return lambda known: known & needed == needed and all(part(known) for part in rest)
        case AnyOf():
            enough, rest = _split(condition.parts, bits)
            if not rest:
                return lambda known: known & enough != 0
            return lambda known: known & enough != 0 or any(part(known) for part in rest)
        case _:
            assert_never(condition)


def _split(parts: Iterable[Condition], bits: Mapping[Condition, int]) -> tuple[int, tuple[Callable[[int], bool], ...]]:
    """The bits of the parts that have any, and the other parts compiled."""
    found = 0
    rest = []
    for part in parts:
        if part in bits:
            found |= bits[part]
        else:
            rest.append(_compiled(part, bits))
    return found, tuple(rest)
