"""Requests and decisions, in the shape of the OpenID AuthZEN Authorization API 1.0.

Standard library only: the adapter, the reference engine and the tests share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, Attributes, Given, GivenAttributes
from privtab.base.effects import Change, Effect, with_changes
from privtab.base.errors import DecisionError, ExitCode, InvalidRequest
from privtab.base.names import LEFT_OUT, bare_name, decode_name, refers_to, unencoded_name

_DENY = "deny "
MOST_WAYS = 2
"""The most ways to turn a denial that a short explanation lists."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity: its type and its path, names from the root down joined by `/`, each percent-encoded.

    >>> str(Entity.parse("table:m/c/s/t"))
    'table:m/c/s/t'
    """

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"

    @property
    def names(self) -> tuple[str, ...]:
        """The encoded names of the path; empty for an empty path."""
        return tuple(self.id.split("/")) if self.id else ()

    @property
    def decoded_names(self) -> tuple[str, ...]:
        """The names of the path in the form of principals' names, in which `%2A` and `%3F` remain."""
        return tuple(map(decode_name, self.names))

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The names that the path encodes.

        >>> Entity.parse("table:a%2Fb/%2A").plain_names
        ('a/b', '*')
        """
        return tuple(map(unencoded_name, self.names))

    def is_called(self, principal: str) -> bool:
        """Tell whether the name of a principal is the last name of the entity, or its whole path."""
        return refers_to(principal, self.id)

    @classmethod
    def parse(cls, text: str) -> Entity:
        """Read `type:path`. Raises ValueError if the text has no type."""
        type_, colon, path = text.partition(":")
        if not colon or not type_:
            raise ValueError(f"`{text}` is not an entity: write type:path, as in table:m/c/s/t")
        return cls(type_, path)


def exact(value: Any) -> Any:
    """A text as a `str` itself, also within entities and collections: a subclass may compare as it likes. Anything else is unchanged.

    >>> class Name(str): ...
    >>> [type(name).__name__ for name in exact((Name("ann"), "ben"))]
    ['str', 'str']
    """
    match value:
        case str():
            return str.__str__(value)
        case Entity():
            return Entity(exact(value.type), exact(value.id))
        case GivenAttributes():
            return GivenAttributes(**{part.name: exact(getattr(value, part.name)) for part in fields(value)})
        case tuple():
            return tuple(map(exact, value))
        case list():
            return list(map(exact, value))
        case frozenset():
            return frozenset(map(exact, value))
        case dict():
            return {exact(name): exact(inner) for name, inner in value.items()}
        case _:
            return value


class PolicyNames(Protocol):
    """The names of a policy that reading a request needs; a `Vocabulary` has them."""

    @property
    def attributes(self) -> Attributes:
        """The declared attributes."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """The types of subjects; all are users."""

    def spelt(self, entity: Entity) -> Entity:
        """The entity with its id as a path."""


NOT_SET = "=false"
"""The suffix of a flag that the context states as not set: `pii=false`."""


ACTIVE_ROLES = "active_roles"
"""Where a context names the roles of the caller that count. No flag has this name."""
MOST_ACTIVE_ROLES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The question whether `user` may do `action` on `resource`.

    `with_` holds further objects by name. `flags` holds what the context states: `pii`, it is set; `pii=false`, it is not.
    `active_roles`: the roles of the user whose grants count, for policies that let requests say so; None: all roles.

    >>> Request(user="user:ann", action="load", resource=Entity.parse("table:m/c/s/t"), flags=frozenset({"pii"})).user
    'ann'
    """

    user: str
    action: str
    resource: Entity
    groups: tuple[str, ...] = ()
    with_: Mapping[str, Entity] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    active_roles: tuple[str, ...] | None = None
    attributes: GivenAttributes = GivenAttributes.NONE
    """The declared attributes that the request gives."""

    def __post_init__(self) -> None:
        """Replace `user:alice` by `alice`, `group:hr` by `hr` and `role:analyst` by `analyst`, and texts of subclasses of str."""
        resource = self.resource
        if not (
            type(resource) is Entity
            and type(self.user) is type(self.action) is type(resource.type) is type(resource.id) is str
            and not (self.groups or self.with_ or self.flags or self.active_roles)
            and (self.attributes is GivenAttributes.NONE or not self.attributes)
        ):
            for name in ("user", "action", "resource", "groups", "with_", "flags", "active_roles", "attributes"):
                object.__setattr__(self, name, exact(getattr(self, name)))
        if type(self.user) is str and ":" in self.user:
            object.__setattr__(self, "user", bare_name(self.user, "user"))
        if self.groups and type(self.groups) is tuple and any(type(g) is str and ":" in g for g in self.groups):
            bare = tuple(bare_name(g, "group") if type(g) is str else g for g in self.groups)
            object.__setattr__(self, "groups", bare)
        if self.active_roles and type(self.active_roles) is tuple:
            bare = tuple(bare_name(r, "role") if type(r) is str else r for r in self.active_roles)
            object.__setattr__(self, "active_roles", bare)

    def objects(self, slots: Iterable[str]) -> dict[str, Entity]:
        """The resource, in the slot with the empty name, and some further objects of the request."""
        return {"": self.resource, **{slot: self.with_[slot] for slot in slots if slot in self.with_}}

    def types(self, slots: Iterable[str]) -> dict[str, str]:
        """The types of some further objects; `LEFT_OUT` for one that the request has not."""
        return {slot: self.with_[slot].type if slot in self.with_ else LEFT_OUT for slot in slots}

    @property
    def plain(self) -> bool:
        """Return whether the request has a user, an action and a resource, and nothing else."""
        if self.groups or self.with_ or self.flags or self.active_roles is not None:
            return False
        return self.attributes is GivenAttributes.NONE or not self.attributes

    @classmethod
    def from_json(cls, value: object, names: PolicyNames | None = None) -> Request:
        """Read an AuthZEN evaluation request. Raises InvalidRequest, which names the part that is wrong.

        `names`: those of the policy, which say what types of subjects are users, and how ids are written; properties that are not
        attributes of the policy are ignored.
        """
        declared = NO_ATTRIBUTES if names is None else names.attributes
        request = _mapping(value, "request")
        subject = _mapping(request.get("subject"), "subject")
        type_, subjects = _text(subject.get("type"), "subject.type"), ("user",) if names is None else names.subjects
        if type_ not in subjects:
            expected = " or ".join(f"`{name}`" for name in subjects)
            raise InvalidRequest(f"subject.type is `{type_:.80}`: only a {expected} can be a subject")
        user = _text(subject.get("id"), "subject.id")
        properties = _mapping(subject.get("properties", {}), "subject.properties")
        groups = properties.get("groups", [])
        if not isinstance(groups, Sequence) or isinstance(groups, str) or not all(isinstance(g, str) for g in groups):
            raise InvalidRequest("subject.properties.groups must be a list of names")
        action = _text(_mapping(request.get("action"), "action").get("name"), "action.name")
        context = _mapping(request.get("context", {}), "context")
        objects = _mapping(context.get("with", {}), "context.with")
        roles, flags = cls.read_context(context)
        of_objects = ((f"context.with.{name}", one) for name, one in objects.items())
        for where, part in (("action", request["action"]), ("resource", request.get("resource")), *of_objects):
            _mapping(_mapping(part, where).get("properties", {}), f"{where}.properties")
        return cls(
            user=user,
            action=action,
            resource=_entity(request.get("resource"), "resource", names),
            groups=tuple(groups),
            with_={
                _text(name, "a name in context.with"): _entity(o, f"context.with.{name}", names)
                for name, o in objects.items()
            },
            active_roles=roles,
            flags=frozenset(flag for flag in flags if flag.removesuffix(NOT_SET) not in declared.request),
            attributes=_given_attributes(request, declared) if declared else GivenAttributes.NONE,
        )

    @staticmethod
    def read_context(context: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, list[str]]:
        """The active roles and the flags in a context.

        No roles for other values than a list of names, which are read as a flag: policies with active roles refuse it. All flags are set
        except those that are `false`, since a flag can only require more.

        >>> Request.read_context({"pii": True, "mfa": False, "active_roles": ["analyst"]})
        (('analyst',), ['pii', 'mfa=false'])
        """
        value = context.get(ACTIVE_ROLES)
        listed = (
            isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(name, str) for name in value)
        )
        roles = tuple(value) if listed and value is not None else None
        read = ("with",) if roles is None else ("with", ACTIVE_ROLES)
        named = ((name, value) for name, value in context.items() if name and name not in read and "=" not in name)
        return roles, [f"{name}{NOT_SET}" if value is False else name for name, value in named]

    def to_json(self) -> dict[str, Any]:
        """The AuthZEN evaluation request."""
        subject: dict[str, Any] = {"type": "user", "id": self.user}
        if self.groups:
            subject["properties"] = {"groups": list(self.groups)}
        request: dict[str, Any] = {
            "subject": subject,
            "action": {"name": self.action},
            "resource": {"type": self.resource.type, "id": self.resource.id},
        }
        context: dict[str, Any] = {
            flag.removesuffix(NOT_SET): not flag.endswith(NOT_SET) for flag in sorted(self.flags, reverse=True)
        }
        context = dict(sorted(context.items()))
        if self.with_:
            context["with"] = {name: {"type": e.type, "id": e.id} for name, e in sorted(self.with_.items())}
        if self.active_roles is not None:
            context[ACTIVE_ROLES] = list(self.active_roles)
        if self.attributes:
            self._add_attributes(request, context)
        if context:
            request["context"] = context
        return request

    def _add_attributes(self, request: dict[str, Any], context: dict[str, Any]) -> None:
        attributes = self.attributes
        context |= attributes.request
        for entity, values in (
            (request["subject"], attributes.user),
            (request["resource"], attributes.entity),
            *((context["with"][name], attributes.of_slot(name)) for name in self.with_),
        ):
            if values:
                entity["properties"] = entity.get("properties", {}) | dict(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision and its reasons; true if it is an allow.

    `context` is the decision's JSON object, as in OPA and AuthZEN; `rule`, `reasons`, `missing`, `effects`, `source`
    and `revision` are its parts.

    >>> decision = Decision(allowed=False, context={"missing": [["READ (table:m/c/s/t)"]]})
    >>> bool(decision), decision.missing, decision.reasons
    (False, (('READ (table:m/c/s/t)',),), ())
    """

    allowed: bool
    context: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = field(default=None, compare=False, repr=False)
    """The id of the decision in logs; not part of its JSON."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def rule(self) -> str | None:
        """The id of the rule that decided, `system/type/operation`."""
        rule = self.context.get("rule")
        return rule if isinstance(rule, str) else None

    @property
    def reasons(self) -> tuple[Mapping[str, str], ...]:
        """For an allow, each thing that was needed: `atom`, the entity that gives it (`on`), the principal (`through`)."""
        return tuple(self.context.get("reasons", ()))

    @property
    def missing(self) -> tuple[tuple[str, ...], ...]:
        """For a denial, the smallest sets that would turn it into an allow: `PRIVILEGE (type:path)`, or `deny …` for a denial to remove."""
        return tuple(tuple(atoms) for atoms in self.context.get("missing", ()))

    @property
    def effects(self) -> tuple[Effect, ...]:
        """For an allow, the effects to carry out: texts, as in `become owner (table:m/c/s/t)`, each with its `change` to the state if the decision has it.

        Raises ValueError if the decision says changes wrongly.
        """
        texts, changes = self.context.get("effects", ()), self.context.get("changes")
        if changes is None:
            return tuple(map(Effect, texts))
        return tuple(Effect(text, Change.from_json(change)) for text, change in zip(texts, changes, strict=True))

    @property
    def source(self) -> str | None:
        """The document and line that the rule comes from."""
        source = self.context.get("source")
        return source if isinstance(source, str) else None

    @property
    def revision(self) -> str | None:
        """The revision of the policy that decided."""
        revision = self.context.get("revision")
        return revision if isinstance(revision, str) else None

    @classmethod
    def from_json(cls, value: object) -> Decision:
        """Read a decision in its JSON form. Raises ValueError unless `decision` is a boolean."""
        if not isinstance(value, Mapping) or not isinstance(value.get("decision"), bool):
            raise ValueError("not a decision")
        context = value.get("context", {})
        if not isinstance(context, Mapping):
            raise ValueError("not a decision: `context` is not an object")
        return cls(allowed=value["decision"], context=dict(context))

    @classmethod
    def from_engine(cls, value: object, request: Request) -> Decision:
        """Read a decision of OPA's, which lists effects as texts, and add their changes. Raises ValueError as `from_json`."""
        decision = cls.from_json(value)
        effects = decision.context.get("effects", [])
        if not isinstance(effects, list) or not all(isinstance(text, str) for text in effects):
            raise ValueError("`effects` is not a list of texts")
        return replace(decision, context=with_changes(decision.context, request.user, request.active_roles))

    def to_json(self) -> dict[str, Any]:
        """The decision in its JSON form, as AuthZEN has it."""
        return {"decision": self.allowed, "context": dict(self.context)}

    def why_denied(self, *, brief: bool = False) -> str:
        """The missing rights or the denial that applies, as text for users; empty if nothing would turn the denial into an allow.

        `brief`: of many sets, only the first ones, which are the smallest.

        >>> missing = [["deny READ (table:m/c) to user:ben"], ["READ (table:m/c)", "USE (schema:m)"], ["owner (table:m/c)"]]
        >>> denied = Decision(allowed=False, context={"missing": missing})
        >>> denied.why_denied(brief=True)
        'blocked by a denial of READ (table:m/c) to user:ben; or missing: READ (table:m/c) and USE (schema:m), or another way'
        """
        others = len(self.missing) - MOST_WAYS if brief else 0
        blocked, lacking = [], []
        for atoms in self.missing[: MOST_WAYS if brief else None]:
            texts = sorted(atoms, key=lambda atom: atom.startswith(_DENY))
            denials = [f"a denial of {atom.removeprefix(_DENY)}" for atom in texts if atom.startswith(_DENY)]
            if len(denials) == len(texts):
                blocked.append(" and ".join(denials))
            else:
                needed = " and ".join(texts[: len(texts) - len(denials)])
                lacking.append(f"{needed}, and blocked by {' and '.join(denials)}" if denials else needed)
        parts = [f"blocked by {', or '.join(blocked)}"] if blocked else []
        parts += [f"{'or ' if blocked else ''}missing: {', or '.join(lacking)}"] if lacking else []
        more = "another way" if others == 1 else f"one of {others} other ways"
        return "; ".join(parts) + (f", or {more}" if others > 0 else "")

    def describe(self, request: Request, *, brief: bool = False) -> str:
        """One sentence for users: who is allowed or denied what, and what is missing or which denial applies.

        `brief`: of many ways that would turn a denial, only the first.
        """
        operation = f"`{request.action}` on {request.resource}"
        if self.allowed:
            return f"user:{request.user} may {operation}"
        error = self.context.get("error")
        message = error.get("message") if isinstance(error, Mapping) else None
        explanation = message if isinstance(message, str) else self.why_denied(brief=brief)
        return f"user:{request.user} may not {operation}{f'; {explanation}' if explanation else ''}"


class AccessDenied(DecisionError):
    """The request is denied. `decision` says by which rule and what is missing.

    >>> request = Request(user="ann", action="drop", resource=Entity.parse("table:m/c/s/t"))
    >>> str(AccessDenied(request, Decision(allowed=False)))
    'user:ann may not `drop` on table:m/c/s/t'
    """

    exit_code = ExitCode.FINDINGS

    def __init__(self, request: Request, decision: Decision) -> None:
        super().__init__(decision.describe(request))
        self.request = request
        self.decision = decision


def roles_not_held(user: str, roles: Iterable[str]) -> dict[str, str]:
    """The error of a request with active roles that its user does not hold is denied. It says nothing about whether these roles exist."""
    names = ", ".join(f"`{name}`" for name in sorted(roles))
    return {"kind": "role_not_held", "message": f"user:{user} does not hold the active role(s) {names}"}


def smallest_sets(sets: Iterable[Iterable[str]]) -> list[list[str]]:
    """The sets that contain no other, each sorted, smallest first: what is missing for an allow.

    >>> smallest_sets([["READ (t:a)", "USE (s:a)"], ["READ (t:a)"]])
    [['READ (t:a)']]
    """
    minimal: list[frozenset[str]] = []
    for candidate in sorted(set(map(frozenset, sets)), key=len):
        if not any(smaller <= candidate for smaller in minimal):
            minimal.append(candidate)
    return sorted(map(sorted, minimal), key=lambda texts: (len(texts), texts))


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{where} must be an object")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{where} must be a non-empty string")
    return value


def _entity(value: object, where: str, names: PolicyNames | None) -> Entity:
    entity = _mapping(value, where)
    id_ = entity.get("id", "")
    if not isinstance(id_, str):
        raise InvalidRequest(f"{where}.id must be a string")
    found = Entity(_text(entity.get("type"), f"{where}.type"), id_)
    return found if names is None else names.spelt(found)


def _given_attributes(request: Mapping[str, Any], declared: Attributes) -> GivenAttributes:
    """The declared attributes among the properties and in the context of a request."""
    context = request.get("context", {})

    of_request = {name: value for name, value in context.items() if name in declared.request}
    for name, value in _declared(request["action"], declared.request).items():
        if name in of_request and of_request[name] != value:
            raise InvalidRequest(f"action.properties.{name} and context.{name} differ")
        of_request[name] = value
    return GivenAttributes(
        user=_declared(request["subject"], declared.user),
        entity=_declared(request["resource"], declared.declared_on(request["resource"]["type"])),
        request=of_request,
        with_={
            name: values
            for name, entity in context.get("with", {}).items()
            if (values := _declared(entity, declared.declared_on(entity["type"])))
        },
    )


def _declared(part: Mapping[str, Any], declared: Mapping[str, Attribute]) -> Given:
    """The properties that the policy takes from requests."""
    return {name: value for name, value in part.get("properties", {}).items() if _is_given(declared.get(name))}


def _is_given(attribute: Attribute | None) -> bool:
    return attribute is not None and "request" in attribute.origins
