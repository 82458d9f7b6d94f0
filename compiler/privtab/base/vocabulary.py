"""The names of a policy, against which requests are checked before they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations, product
from typing import Any

from privtab.base.attributes import NO_ATTRIBUTES, Attributes
from privtab.base.errors import InvalidRequest
from privtab.base.hints import hint
from privtab.base.names import (
    LEFT_OUT,
    check_characters,
    check_principal,
    decode_name,
    encode_name,
    escape_wildcard,
    is_wildcard,
    wrong_escape,
)
from privtab.base.paths import PathShape, path_shape
from privtab.base.records import dataclass
from privtab.base.request import ACTIVE_ROLES, MOST_ACTIVE_ROLES, NOT_SET, Entity, Request
from privtab.base.sql_text import FILTER_KINDS


def kinds_of_requests(
    flags: Iterable[str], types: Mapping[str, Sequence[str]]
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Every set of flags with every choice of a type for each `with` object, those with few flags first; flags are sorted."""
    listed = sorted(flags)
    for size in range(len(listed) + 1):
        for chosen in combinations(listed, size):
            for of_slots in product(*types.values()):
                yield chosen, dict(zip(types, of_slots, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationShape:
    """The shape of requests for one operation."""

    unnamed: bool
    withs: Mapping[str, tuple[str, ...]]
    flags: frozenset[str]
    required_flags: frozenset[str] = frozenset()
    """The flags that a request must state, set or not."""
    needs_active_role: bool = False
    """Whether a request must name an active role, which becomes the owner of what is created."""

    def settings(self) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
        """The flags and the types of `with` objects of each kind of request."""
        for flags, types in kinds_of_requests(self.flags, self.withs):
            yield frozenset(flags), types

    def missing_flags(self, flags: Iterable[str]) -> frozenset[str]:
        """The required flags that a request with these flags does not state."""
        return self.required_flags and self.required_flags.difference(flag.removesuffix(NOT_SET) for flag in flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The names of a policy, against which requests are checked before they are sent.

    >>> Vocabulary(system="lake", chains={"table": (("table", 1),)}, operations={}).shapes["table"].keys("t")
    ['table:t']
    """

    system: str
    chains: Mapping[str, tuple[tuple[str, int], ...]]
    """For each entity type, the types on its path with their depth (number of names), from the root to itself."""
    operations: Mapping[str, Mapping[str, OperationShape]]
    """By entity type, then operation."""
    request_groups: bool = False
    subjects: tuple[str, ...] = ("user",)
    """The types of subjects in requests; all are users."""
    active_roles: bool = False
    """Whether requests may name the active roles of the caller."""
    nested: Mapping[str, int] = field(default_factory=dict)
    """The most levels of each type that nests."""
    flat: frozenset[str] = frozenset()
    """The types with flat ids: the state tells where their entities lie."""
    opaque: frozenset[str] = frozenset()
    """The types whose ids are one name that may be written with `/`."""
    attributes: Attributes = NO_ATTRIBUTES
    filters: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The names of row filters and of column masks by kind and entity type, in the order in which they are tried."""
    dialect: str = ""
    """The dialect of their SQL."""
    shapes: Mapping[str, PathShape] = field(init=False, repr=False, compare=False)
    """The shape of the paths of each type."""

    def __post_init__(self) -> None:
        """Work out the shapes of paths."""
        shapes = {type_: path_shape(chain, self.nested, self.flat) for type_, chain in self.chains.items()}
        object.__setattr__(self, "shapes", shapes)

    @classmethod
    def from_program(cls, program: Mapping[str, Any]) -> Vocabulary:
        """Read the program as the policy bundle carries it (`data.privtab_program.<system>`)."""
        entities: Mapping[str, Any] = program["entities"]
        filters: Mapping[str, Any] = program.get("filters", {})
        return cls(
            system=program["system"],
            chains={n: tuple((link["type"], link["depth"]) for link in e["chain"]) for n, e in entities.items()},
            operations={
                type_: {
                    name: OperationShape(
                        unnamed=rule["unnamed"],
                        withs={w: tuple(types) for w, types in rule["with"].items()},
                        flags=frozenset((*rule["flags"], *rule.get("required_flags", ()))),
                        required_flags=frozenset(rule.get("required_flags", ())),
                        needs_active_role=rule.get("needs_active_role", False),
                    )
                    for name, rule in rules.items()
                }
                for type_, rules in program["rules"].items()
            },
            request_groups="request" in program["semantics"]["groups"],
            subjects=tuple(program["semantics"].get("subjects", ("user",))),
            active_roles="active_roles" in program["semantics"],
            attributes=Attributes.from_json(program.get("attributes", {})),
            nested={name: entity["nested"] for name, entity in entities.items() if "nested" in entity},
            flat=frozenset(name for name, entity in entities.items() if "flat" in entity),
            opaque=frozenset(name for name, entity in entities.items() if "opaque" in entity),
            filters={
                kind: {type_: tuple(one["name"] for one in listed) for type_, listed in filters[kind].items()}
                for kind in FILTER_KINDS
                if kind in filters
            },
            dialect=filters.get("dialect", ""),
        )

    def check(self, request: Request) -> OperationShape:
        """Check every name of a request, and return the operation's shape. Raises InvalidRequest with a hint."""
        check_caller(request.user, request.groups)
        self.check_active_roles(request)
        return self.check_question(request)

    def check_question(self, request: Request) -> OperationShape:
        """Check a request except for its user. Raises InvalidRequest."""
        shape = self.check_operation(request.resource.type, request.action)
        self.check_path(request.resource, unnamed=shape.unnamed)
        self.check_context(request, shape)
        return shape

    def check_filtered(self, request: Request) -> Request:
        """Check a question for a row filter or a column mask, which the action names; the question whether the last one holds.

        Raises InvalidRequest for types without any.
        """
        listed = self.filters.get(request.action, {})
        type_, kind = request.resource.type, request.action.replace("_", " ")
        if type_ not in listed:
            if type_ not in self.chains:
                raise InvalidRequest(
                    f"unknown entity type `{type_}` in system `{self.system}`" + hint(type_, self.chains)
                )
            known = ", ".join(f"`{name}`" for name in listed) or "no type"
            raise InvalidRequest(f"`{type_}` has no {kind}s; {known} has")
        asked = [replace(request, action=f"{request.action}.{name}") for name in listed[type_]]
        for one in asked:
            self.check(one)
        return asked[-1]

    def check_active_roles(self, request: Request) -> None:
        """Check the active roles that a request names, if the policy reads them. Raises InvalidRequest."""
        if not self.active_roles:
            return
        if any(flag.removesuffix(NOT_SET) == ACTIVE_ROLES for flag in request.flags):
            raise InvalidRequest(f"context.{ACTIVE_ROLES} must be a list of names of roles")
        check_role_names(request.active_roles or ())
        shape = self.operations.get(request.resource.type, {}).get(request.action)
        if shape is not None and shape.needs_active_role and not request.active_roles:
            raise InvalidRequest(
                f"`{request.action}` on `{request.resource.type}` needs context.{ACTIVE_ROLES}: the first of them becomes the owner"
            )

    def check_context(self, request: Request, shape: OperationShape) -> None:
        """Check the `with` objects and the flags that an operation uses, and the attributes. Raises InvalidRequest.

        Other objects and flags are ignored.
        """
        if request.attributes:
            self.check_attributes(request)
        for flag in sorted(shape.missing_flags(request.flags)):
            raise InvalidRequest(
                f"`{request.action}` on `{request.resource.type}` needs the flag `{flag}`: say whether it is set, true or false"
            )
        for name, types in shape.withs.items():
            entity = request.with_.get(name)
            if entity is None and LEFT_OUT in types:
                continue
            if entity is None:
                raise InvalidRequest(
                    f"`{request.action}` on `{request.resource.type}` needs context.with.{name}: "
                    f"an entity of type {' or '.join(types)}"
                    + hint(name, [other for other in request.with_ if other not in shape.withs])
                )
            if entity.type not in types or not entity.type:
                raise InvalidRequest(
                    f"context.with.{name} is a `{entity.type}`; it must be of type {' or '.join(filter(None, types))}"
                )
            self.check_path(entity)

    def check_attributes(self, request: Request) -> None:
        """Check the attributes that a request gives. Raises InvalidRequest."""
        attributes, declared = request.attributes, self.attributes
        for name, value in attributes.user.items():
            declared.requested("user", name, value)
        for name, value in attributes.request.items():
            declared.requested("request", name, value)
        of_entities: dict[tuple[Entity, str], Any] = {}
        for slot, entity in (("", request.resource), *request.with_.items()):
            for name, value in attributes.of_slot(slot).items():
                declared.requested("entity", name, value, of_type=entity.type)
                if of_entities.setdefault((entity, name), value) != value:
                    raise InvalidRequest(f"the request gives two values of the attribute `{name}` of `{entity}`")
        for slot in attributes.with_:
            if slot not in request.with_:
                raise InvalidRequest(f"the request gives attributes of `{slot}`, and no object of this name")

    def check_operation(self, type_: str, operation: str) -> OperationShape:
        """The shape of an operation. Raises InvalidRequest if the policy does not have it."""
        if type_ not in self.chains:
            raise InvalidRequest(f"unknown entity type `{type_}` in system `{self.system}`" + hint(type_, self.chains))
        operations = self.operations.get(type_, {})
        shape = operations.get(operation)
        if shape is None and type_ in self.filters.get(operation, {}):
            raise InvalidRequest(
                f"`{operation}` on `{type_}` is answered with SQL, not with a decision: see `privtab explain` and "
                "`row_filter` or `column_masks` of clients"
            )
        if shape is None:
            raise InvalidRequest(f"unknown operation `{operation}` on `{type_}`" + hint(operation, operations))
        return shape

    def check_path(self, entity: Entity, *, unnamed: bool = False) -> None:
        """Check the depth and the encoding of a path. Raises InvalidRequest."""
        chain = self.chains.get(entity.type)
        if chain is None:
            raise InvalidRequest(
                f"unknown entity type `{entity.type}` in system `{self.system}`" + hint(entity.type, self.chains)
            )
        id_ = entity.id
        check_characters(id_, f"path of a `{entity.type}`")
        shape = self.shapes[entity.type]
        if shape.flat is not None:
            if unnamed and entity.type in self.flat and id_.endswith("/"):
                self._check_container(entity)
                return
            shape = shape.written
            chain = shape.chain
        nests = shape.nested is not None
        slashes = id_.count("/") + 1
        if (
            (shape.depth <= slashes <= shape.most if nests else slashes == shape.depth)
            and not ("%" in id_ or "*" in id_ or "?" in id_ or "//" in id_)
            and not (id_.startswith("/") or id_.endswith("/") or not id_)
        ):
            return  # the common case; the rest reports what is wrong
        names = entity.names
        may_omit = unnamed and (
            nests or (entity.type not in self.flat and (len(chain) == 1 or chain[-2][1] < chain[-1][1]))
        )
        ends = may_omit and len(names) > 1 and not names[-1]
        if ends:
            names = names[:-1]
        for name in names:
            if is_wildcard(name):
                raise InvalidRequest(
                    f"malformed path in `{entity}`: there are no wildcards; "
                    f"name one entity, or write `{escape_wildcard(name)}` for the name `{name}`"
                )
            bad_escape = wrong_escape(name)
            if not name or bad_escape:
                raise InvalidRequest(
                    f"malformed path in `{entity}`: "
                    + (f"`{bad_escape}` is not an escape: " if bad_escape else "a name is empty; ")
                    + "only `%` and `/` are escaped in a name, as %25 and %2F"
                )
        if nests:
            self._check_levels(entity, shape, unnamed=unnamed)
            return
        depth = chain[-1][1]
        depths = {depth - 1} if ends else {depth - 1, depth} if may_omit else {depth}
        if len(names) not in depths:
            expected = " or ".join(str(d) for d in sorted({*depths, depth}))
            raise InvalidRequest(
                f"wrong depth: `{entity}` has {len(names)} name(s), "
                f"a `{entity.type}` path has {expected} ({shape.example()}){self._advice(entity.type, unnamed=unnamed)}"
            )

    def _check_container(self, entity: Entity) -> None:
        """Check the id of a flat type that names only the entity around: `folder:f9/`. Raises InvalidRequest."""
        parents = self.containers(entity.type)
        try:
            container = Entity.parse(entity.id[:-1])
        except ValueError:
            container = Entity("", "")
        if container.type not in parents:
            raise InvalidRequest(f"malformed path in `{entity}`{self._advice(entity.type, unnamed=True)}")
        self.check_path(container)

    def containers(self, type_: str) -> tuple[str, ...]:
        """The types in which an entity of a type can lie."""
        chain = self.chains[type_]
        return ((chain[-2][0],) if len(chain) > 1 else ()) + ((type_,) if type_ in self.nested else ())

    def _advice(self, type_: str, *, unnamed: bool) -> str:
        """The forms of ids that are flat, or begin with a flat id."""
        if type_ in self.opaque:
            return "; in it `/` is written %2F, and % is written %25"
        if self.shapes[type_].flat is None:
            return ""
        if unnamed and type_ in self.flat:
            container = self.containers(type_)[-1]
            return f"; a call without the id names what is around it: `{type_}:{container}:{self.shapes[container].example()}/`"
        return "; the state tells where it lies"

    def spelt(self, entity: Entity) -> Entity:
        """The entity with its id as a path, where requests and rows may write it with `/`: `/todos` is `%2Ftodos`.

        An id with both `/` and `%` is left as it is, and so refused: nobody can tell whether `%2F` in it is an escape.
        """
        if entity.type in self.opaque and "/" in entity.id and "%" not in entity.id:
            return Entity(entity.type, encode_name(entity.id))
        return entity

    def written(self, entity: Entity) -> str:
        """The id that requests write for an entity; the inverse of `spelt`."""
        if entity.type in self.opaque and "%25" not in entity.id:
            return decode_name(entity.id)
        return entity.id

    def lies_in_state(self, type_: str) -> bool:
        """Return whether only the state tells on which path an entity of a type lies."""
        return bool(self.flat) and self.shapes[type_].flat is not None

    def _check_levels(self, entity: Entity, shape: PathShape, *, unnamed: bool) -> None:
        """Check the number of names of a path whose length varies. Raises InvalidRequest."""
        names = len(entity.names)
        if not shape.depth <= names <= shape.most:
            advice = f"; a call without the last name ends with `/`: `{entity}/`" if unnamed else ""
            raise InvalidRequest(
                f"wrong depth: `{entity}` has {names} name(s), a `{entity.type}` path has {shape.depth} to {shape.most} "
                f"({shape.example()}){advice}"
            )

    def keys(self, entity: Entity) -> list[str]:
        """The keys of the entities on the path, from the root to the entity itself, which is absent if unnamed."""
        id_ = entity.id
        if self.nested or (id_.endswith("/") and self.shapes[entity.type].flat is None):
            return self.shapes[entity.type].keys(id_)
        names = id_.split("/") if id_ else []
        last = len(names)
        return [
            f"{type_}:{id_ if depth == last else '/'.join(names[:depth])}"
            for type_, depth in self.chains[entity.type]
            if depth <= last
        ]

    def item_keys(self, entity: Entity) -> list[str]:
        """The keys of an item for OPA. Where a type nests, a path without its last name has a key that ends with `/`."""
        keys = self.keys(entity)
        ends = self.shapes[entity.type].nested is not None and entity.id.endswith("/")
        return [*keys, f"{entity.type}:{entity.id}"] if ends else keys

    def complete(self, entity: Entity) -> bool:
        """Return whether the path has the last name of its entity."""
        return self.shapes[entity.type].named(entity.id)


def check_caller(user: str, groups: Sequence[str]) -> None:
    """Check the names of a user and of the groups that a request brings. Raises InvalidRequest."""
    if not user or "" in groups:
        raise InvalidRequest("the name of the user is empty" if not user else "the name of a group is empty")
    check_principal(user)
    for group in groups:
        check_principal(group, "group")


def check_role_names(names: Sequence[str]) -> None:
    """Check the names of the roles that a request makes active. Raises InvalidRequest."""
    if len(names) > MOST_ACTIVE_ROLES:
        raise InvalidRequest(f"{len(names):,} active roles; {MOST_ACTIVE_ROLES:,} is the most")
    for name in names:
        if not name:
            raise InvalidRequest("the name of an active role is empty")
        if is_wildcard(name):
            raise InvalidRequest(f"`{name}` is not the name of a role: there are no wildcards")
        check_principal(name, "role")
