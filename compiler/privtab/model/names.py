"""Entities, privileges, aliases, sets, roles and semantics: names resolved against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import cast, get_args

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, AttributeKind, Attributes
from privtab.base.diagnostics import Diagnostic, Span
from privtab.base.names import ANY_PRIVILEGE, PRIVILEGE_ATTRIBUTE, PrincipalKind
from privtab.base.records import dataclass
from privtab.ir.declarations import OwnerSemantics, Semantics
from privtab.ir.nodes import Alias, EntityType, Privilege, Role
from privtab.language.findings import undeclared, unreadable, unsound_rows
from privtab.language.syntax.nodes import (
    ConditionCell,
    PrivilegeDecl,
    RoleDecl,
    SemanticsDecl,
    SetDecl,
    Tables,
    TypeDecl,
    Word,
)
from privtab.model.named import named_conditions
from privtab.model.nodes import Hierarchy

_PRINCIPALS: dict[str, PrincipalKind] = {"user": "user", "group": "group", "role": "role"}


@dataclass(slots=True)
class DeclaredNames:
    """The names that a file declares; `poisoned` holds names that exist but already have a finding."""

    tables: Tables
    hierarchy: Hierarchy
    privileges: dict[str, Privilege] = field(default_factory=dict)
    binds: dict[str, frozenset[str]] = field(default_factory=dict)
    """The types that each privilege can be granted on."""
    aliases: dict[str, Alias] = field(default_factory=dict)
    sets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: dict[str, ConditionCell] = field(default_factory=dict)
    """The named conditions."""
    roles: dict[str, Role] = field(default_factory=dict)
    """The declared roles, once they are resolved."""
    declared: dict[str, Word] = field(default_factory=dict)
    poisoned: set[str] = field(default_factory=set)
    findings_by_key: dict[tuple[str, ...], Diagnostic] = field(default_factory=dict)
    """Findings about names by key, so that the same mistake in many cells is analysed once."""
    attributes: Attributes = NO_ATTRIBUTES

    @classmethod
    def of(cls, tables: Tables, found: list[Diagnostic]) -> DeclaredNames:
        """Resolve everything that rows refer to."""
        names = cls(tables, Hierarchy(_entities(tables, found)))
        _privileges(names, found)
        _sets(names, found)
        names.conditions, endless = named_conditions(tables.conditions, names.declared, found)
        names.poisoned |= endless
        _implications(names, found)
        if tables.semantics.transitive:
            _in_all_steps(names)
        if tables.any_privilege:
            _any_privilege(names)
        names.attributes = _attributes(names, found)
        return names

    @property
    def nests(self) -> bool:
        """True if a type nests."""
        return any(type_.nested for type_ in self.entities.values())

    @property
    def entities(self) -> dict[str, EntityType]:
        """Entity types by name."""
        return cast("dict[str, EntityType]", self.hierarchy.entities)

    def members(self, name: str) -> tuple[str, ...] | None:
        """The privileges that a name stands for; None if the name is poisoned or unknown."""
        if name in self.poisoned:
            return None
        if name in self.privileges:
            return (name,)
        if name in self.aliases:
            return (self.aliases[name].of,)
        return self.sets.get(name)

    def with_implied(self, words: Iterable[str], type_: str | None = None) -> tuple[str, ...]:
        """Some privileges and what they imply, if a type is given what they imply there."""
        found = dict.fromkeys(words)
        for name in tuple(found):
            implied = self.privileges[name].implies if name in self.privileges else ()
            found.update(dict.fromkeys(p for p in implied if type_ is None or type_ in self.binds[p]))
        return tuple(found)

    def known_members(self, word: Word, found: list[Diagnostic]) -> tuple[str, ...] | None:
        """As `members`, with a finding for a name that is to be reported."""
        members = self.members(word.value)
        if members is None and self.unknown(word.value):
            found.append(undeclared.unknown_privilege(word.span, word.value, self.declared))
        return members

    def unknown(self, name: str) -> bool:
        """Return whether a use of the name as a privilege is to be reported."""
        return (
            name not in self.poisoned
            and name not in self.declared
            and self.absent(name, "privileges", "sets", "conditions")
        )

    def absent(self, name: str, *sections: str) -> bool:
        """Return whether nothing unreadable in some sections could declare the name."""
        return name not in self.tables.lost and self.tables.unreadable.isdisjoint(sections)

    def finding_for(self, key: tuple[str, ...], span: Span, make: Callable[[], Diagnostic]) -> Diagnostic:
        """The finding that `make` returns, at a span; made once for each key."""
        if key not in self.findings_by_key:
            self.findings_by_key[key] = make()
        return replace(self.findings_by_key[key], span=span)

    def check_type(self, word: Word, found: list[Diagnostic]) -> bool:
        """Return whether the type exists; add a finding if it does not."""
        if word.value in self.entities:
            return True
        if self.absent(word.value, "entities"):
            found.append(undeclared.unknown_type(word.span, word.value, self.entities))
        return False


def _entities(tables: Tables, found: list[Diagnostic]) -> dict[str, EntityType]:
    details = {t.name.value: t for t in tables.types}
    entities: dict[str, EntityType] = {}
    for decl in tables.entities:
        name = decl.name.value
        detail = details.get(name) or TypeDecl(name=decl.name)
        principal = detail.principal or _PRINCIPALS.get(name)
        entities[name] = EntityType(
            name=name,
            parent=decl.parent,
            single=detail.single,
            title=detail.title,
            renamed_from=detail.renamed_from,
            principal=None if principal == "none" else principal,
            nested=0 if detail.nested is None else detail.nested.value,
            flat=detail.flat is not None,
        )
    if "entities" not in tables.unreadable:
        unknown = (t.name for t in tables.types if t.name.value not in entities and t.name.value not in tables.lost)
        found.extend(undeclared.unknown_type(name.span, name.value, entities) for name in unknown)
    for type_ in tables.types:
        if type_.nested is not None and type_.name.value in entities:
            _check_nested(type_.name.value, type_.nested.span, entities, found)
    for type_ in tables.types:
        if type_.flat is not None and type_.name.value in entities:
            _check_flat(type_.name.value, type_.flat.span, entities, found)
    return entities


def _check_flat(name: str, span: Span, entities: dict[str, EntityType], found: list[Diagnostic]) -> None:
    """Check whether the ids of a type may be flat, and whether a type below it nests whose ids are not."""
    type_ = entities[name]
    if type_.single:
        why = "there is one per parent, and its path is that of its parent"
    elif type_.parent is None:
        below = next((other for other in entities.values() if other.parent == name), None)
        if below is None:
            entities[name] = replace(type_, flat=False, opaque=True)
            return
        why = f"paths of `{below.name}` begin with them"
    elif type_.principal is not None and type_.nested:
        why = "its entities are principals, and a principal's name is one name"
    else:
        with_paths = (t for t in entities.values() if t.nested and not t.flat)
        below = next((t for t in with_paths if type_ in _above(t, entities)), None)
        if below is not None:
            found.append(unsound_rows.misplaced_flat_nested(span, name, below.name))
        return
    found.append(unsound_rows.misplaced_flat(span, name, why))
    entities[name] = replace(type_, flat=False)


def _check_nested(name: str, span: Span, entities: dict[str, EntityType], found: list[Diagnostic]) -> None:
    """Check whether a type may nest; one that may not counts as one that does not, so that only this is reported."""
    type_ = entities[name]
    above = list(_above(type_, entities))
    outer = next((other.name for other in above if other.nested), None)
    if type_.single:
        why = "there is one per parent", "leave out `single` or `nested`"
    elif type_.principal is not None:
        why = (
            "its entities are principals, and a principal's name is one name",
            "groups in groups are rows of the state",
        )
    elif type_.parent is None:
        why = "nothing contains it", "put a type around it, such as the service or the account that it belongs to"
    elif outer is not None:
        found.append(unsound_rows.two_nested_types(span, name, outer))
        entities[name] = replace(type_, nested=0)
        return
    else:
        return
    found.append(unsound_rows.misplaced_nested(span, name, *why))
    entities[name] = replace(type_, nested=0)


def _above(type_: EntityType, entities: dict[str, EntityType]) -> Iterator[EntityType]:
    while type_.parent is not None and type_.parent in entities:
        type_ = entities[type_.parent]
        yield type_


def _privileges(names: DeclaredNames, found: list[Diagnostic]) -> None:
    aliases: dict[str, PrivilegeDecl] = {}
    everywhere = tuple(names.entities)
    anything = frozenset(everywhere)
    for decl in names.tables.privileges:
        name = decl.name.value
        names.declared[name] = decl.name
        if decl.poisoned:
            names.poisoned.add(name)
        elif decl.alias_of is not None:
            aliases[name] = decl
        else:
            on = everywhere
            if decl.on is not None:
                known = [names.check_type(word, found) for word in decl.on]
                on = tuple(dict.fromkeys(word.value for word, ok in zip(decl.on, known, strict=True) if ok))
                if not all(known):
                    names.poisoned.add(name)
            names.binds[name] = anything if on is everywhere else frozenset(on)
            names.privileges[name] = Privilege(
                name=name,
                on=on,
                title=decl.title,
                deprecated=decl.deprecated,
                renamed_from=decl.renamed_from,
                inheritance=None if decl.inheritance == names.tables.semantics.inheritance else decl.inheritance,
            )
    _aliases(aliases, names, found)


def _aliases(aliases: dict[str, PrivilegeDecl], names: DeclaredNames, found: list[Diagnostic]) -> None:
    done: set[str] = set()
    for name in aliases:
        path: list[str] = []
        current = name
        while current in aliases and current not in path and current not in done:
            path.append(current)
            target = aliases[current].alias_of
            current = target.value if target is not None else ""
        if current in path:
            cycle = path[path.index(current) :]
            first, *others = (cast(Word, aliases[n].alias_of).span for n in cycle)
            found.append(unsound_rows.alias_cycle(first, cycle, others))
            names.poisoned.update(path)
        elif current in names.poisoned:
            names.poisoned.update(path)
        elif current not in names.privileges and current not in names.aliases:
            if path:
                target = cast(Word, aliases[path[-1]].alias_of)
                if names.absent(target.value, "privileges", "sets"):
                    found.append(undeclared.alias_of_nothing(target.span, path[-1], target.value, names.privileges))
                names.poisoned.update(path)
        else:
            root = names.aliases[current].of if current in names.aliases else current
            for alias in path:
                names.aliases[alias] = Alias(name=alias, of=root, deprecated=aliases[alias].deprecated)
        done.update(path)


def _sets(names: DeclaredNames, found: list[Diagnostic]) -> None:
    by_name: dict[str, SetDecl] = {}
    for decl in names.tables.sets:
        name = decl.name.value
        if name in names.declared:
            found.append(unsound_rows.duplicate_name(decl.name.span, "name", name, names.declared[name].span))
            names.poisoned.add(name)
            continue
        by_name[name] = decl
        names.declared[name] = decl.name
        if decl.poisoned:
            names.poisoned.add(name)
    _expand(by_name, names, found)
    names.sets = {name: names.sets[name] for name in by_name}


def _expand(decls: Mapping[str, SetDecl], names: DeclaredNames, found: list[Diagnostic]) -> None:
    """Expand each set into its members, nested sets first; without recursion, since chains of sets may be long."""
    members: dict[str, dict[str, None]] = {}
    for start in decls:
        if start in names.sets:
            continue
        members[start] = {}
        todo = [(start, iter(decls[start].members))]
        while todo:
            name, words = todo[-1]
            word = next(words, None)
            if word is None:
                names.sets[name] = tuple(members.pop(name))
                todo.pop()
                if todo and name in names.poisoned:
                    names.poisoned.add(todo[-1][0])
                elif todo:
                    members[todo[-1][0]].update(dict.fromkeys(names.sets[name]))
                continue
            if word.value in members:
                found.append(unsound_rows.set_cycle(word.span, name, word.value))
                names.poisoned.add(name)
                continue
            if word.value in decls and word.value not in names.sets:
                members[word.value] = {}
                todo.append((word.value, iter(decls[word.value].members)))
                continue
            inner = names.known_members(word, found)
            if inner is not None:
                members[name].update(dict.fromkeys(inner))
            else:
                names.poisoned.add(name)


def _implications(names: DeclaredNames, found: list[Diagnostic]) -> None:
    """Expand the implications of each privilege, one step: sets and aliases, not the implications of implied privileges."""
    for decl in names.tables.privileges:
        own = decl.name.value
        listed: set[str] = set()
        implied: dict[str, None] = {}
        for word in decl.implies:
            members = names.members(word.value)
            if word.value in listed:
                twice = f"`{own}` implies `{word.value}` twice", "leave one of them out"
                found.append(unreadable.wrong_value_other(word.span, *twice))
            elif members == (own,):
                itself = f"`{own}` implies itself", "leave it out: a grant gives it anyway"
                found.append(unreadable.wrong_value_other(word.span, *itself))
            elif members is not None:
                if own in names.privileges:
                    on = names.privileges[own].on
                    found.extend(unbound(names, word.value, members, on, lambda w=word: w.span))  # type: ignore[misc]
                implied.update(dict.fromkeys(member for member in members if member != own))
            elif names.unknown(word.value):
                found.append(undeclared.unknown_privilege(word.span, word.value, names.declared))
            listed.add(word.value)
        if implied and own in names.privileges:
            names.privileges[own] = replace(names.privileges[own], implies=tuple(implied))


def _in_all_steps(names: DeclaredNames) -> None:
    """Let each privilege imply everything that its implied privileges imply."""
    for name, privilege in names.privileges.items():
        reached = [name]
        for at in reached:  # grows
            reached += [further for further in names.privileges[at].implies if further not in reached]
        names.privileges[name] = replace(privilege, implies=tuple(reached[1:]))


def _any_privilege(names: DeclaredNames) -> None:
    """Let every privilege imply `any privilege`, where that means the same as a list of the privileges that can be granted on a type.

    It does not with denials, nor where a privilege reaches types on which it cannot be granted, by inheritance or ownership: there,
    conditions list them.
    """
    declared = names.privileges.values()
    on = tuple(type_ for type_ in names.entities if any(type_ in privilege.on for privilege in declared))
    semantics = names.tables.semantics
    down = semantics.inheritance == "down"
    reached = ((p.on, below) for p in declared for type_ in p.on for below in names.hierarchy.below(type_) if down)
    owner = semantics.owner
    held = {p for word in (owner.holds if owner else ()) for p in names.members(word.value) or names.privileges}
    owned = {type_ for name in held for type_ in names.privileges[name].on}
    apart = any(privilege.inheritance for privilege in declared) or semantics.deny != "none"
    beyond = any(type_ in on and type_ not in granted_on for granted_on, type_ in reached)
    if apart or beyond or (held and not owned.issuperset(on)):
        return
    for name, privilege in names.privileges.items():
        names.privileges[name] = replace(privilege, implies=(*privilege.implies, ANY_PRIVILEGE))
    names.privileges[ANY_PRIVILEGE] = Privilege(name=ANY_PRIVILEGE, on=on, granted=False)
    names.binds[ANY_PRIVILEGE] = frozenset(on)


def resolve_semantics(names: DeclaredNames, found: list[Diagnostic]) -> Semantics:
    """Resolve `semantics`, with the privileges of owners expanded."""
    decl = names.tables.semantics
    owner = None
    if decl.owner is not None:
        holds: dict[str, None] = {}
        for word in decl.owner.holds:
            if word.value == "ALL" and "ALL" not in names.declared:
                members: tuple[str, ...] | None = tuple(names.privileges)
            else:
                members = names.known_members(word, found)
            holds.update(dict.fromkeys(members or ()))
        kinds, creator = decl.owner.kinds, decl.owner.creator
        owner = OwnerSemantics(
            kinds=("user",) if kinds is None else cast(tuple[PrincipalKind, ...], tuple(k.value for k in kinds)),
            creator=creator is not None and creator.value,
            holds=names.with_implied(holds),
        )
        if creator is not None and owner.creator == "active_role":
            if "role" not in owner.kinds:
                found.append(unsound_rows.creator_without_role(creator.span, owner.kinds))
            if decl.active_roles == "none":
                found.append(unsound_rows.creator_without_active_role(creator.span))
    return Semantics(
        inheritance=decl.inheritance,
        deny=decl.deny,
        owner=owner,
        subjects=decl.subjects,
        grantees=decl.grantees,
        assignees=decl.assignees,
        groups=decl.groups,
        everyone=None if decl.everyone is None else decl.everyone.value,
        hierarchy=decl.hierarchy,
        active_roles="none" if decl.active_roles == "none" else "request",
        inactive_owners=decl.active_roles == "request_grants",
        gate=_gate(decl),
    )


def _gate(decl: SemanticsDecl) -> str | None:
    """The gate as the file has it; None without one."""
    cells = {"and": decl.gate, "or": decl.alternative}
    texts = {word: cell.cell.line for word, cell in cells.items() if cell is not None}
    if "or" not in texts:
        return texts.get("and")
    return f"{{{', '.join(f'{word}: {text}' for word, text in texts.items())}}}"


def resolve_roles(decls: Iterable[RoleDecl], names: DeclaredNames, found: list[Diagnostic]) -> dict[str, Role]:
    """Resolve roles, with sets and aliases expanded; each member must bind on the type."""
    roles: dict[str, Role] = {}
    for decl in decls:
        for scope in decl.scopes:
            names.check_type(scope, found)
        grants: list[tuple[str, tuple[str, ...]]] = []
        for type_, words in decl.grants:
            known = names.check_type(type_, found)
            privileges: dict[str, None] = {}
            for word in words:
                members = names.known_members(word, found) or ()
                if known:
                    found.extend(unbound(names, word.value, members, (type_.value,), lambda w=word: w.span))  # type: ignore[misc]
                privileges.update(dict.fromkeys(members))
            grants.append((type_.value, names.with_implied(privileges, type_.value)))
        roles[decl.name.value] = Role(
            name=decl.name.value,
            scopes=tuple(dict.fromkeys(scope.value for scope in decl.scopes)),
            grants=tuple(grants),
            title=decl.title,
        )
    return roles


def unbound(
    names: DeclaredNames, written: str, members: tuple[str, ...], types: tuple[str, ...], where: Callable[[], Span]
) -> list[Diagnostic]:
    """A finding if a privilege, or a member of a set, can be granted on none of the types."""
    wrong = [m for m in members if m not in names.poisoned and names.binds[m].isdisjoint(types)]
    if not wrong:
        return []
    on = names.privileges[wrong[0]].on
    return [unsound_rows.privilege_cannot_bind(where(), written, tuple(wrong), types, on)]


def _attributes(names: DeclaredNames, found: list[Diagnostic]) -> Attributes:
    """The declared attributes; attributes of entities with the types that have them."""
    declared: dict[AttributeKind, dict[str, Attribute]] = {kind: {} for kind in get_args(AttributeKind)}
    for decl in names.tables.attributes:
        attribute = decl.type
        if decl.kind == "entity":
            known = tuple(names.entities)
            words = None if decl.on is None else [word for word in decl.on if names.check_type(word, found)]
            on = known if words is None else tuple(dict.fromkeys(word.value for word in words))
            attribute = replace(attribute, on=on)
        declared[decl.kind][decl.name.value] = attribute
    if names.tables.named_privilege:
        granted = tuple(name for name, privilege in names.privileges.items() if privilege.granted)
        declared["request"].setdefault(PRIVILEGE_ATTRIBUTE, Attribute(type="enum", values=granted))
    return Attributes(**declared)
