"""Names that changed while the meaning stayed: from `renamed_from` and aliases of the later policy, and from the caller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from privtab import ir
from privtab.base import FilterWord, UsageError, dataclass, hint
from privtab.ir import replace_atoms, with_targets
from privtab_analysis.diff.nodes import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Old name → new name; names that are not included stay."""

    types: Mapping[str, str] = field(default_factory=dict)
    privileges: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By (old entity type, old operation)."""

    def __bool__(self) -> bool:
        return bool(self.types or self.privileges or self.operations)

    def type(self, name: str) -> str:
        """The new name of an entity type."""
        return self.types.get(name, name)

    def privilege(self, name: str) -> str:
        """The new name of a privilege."""
        return self.privileges.get(name, name)

    def pair(self, entity: str, operation: str) -> tuple[str, str]:
        """The new entity type and operation of a row."""
        return self.type(entity), self.operations.get((entity, operation), operation)

    def target(self, target: ir.Target) -> ir.Target:
        """The target with its new type."""
        return target if target.type not in self.types else replace(target, type=self.types[target.type])

    def formula(self, formula: ir.Formula) -> ir.Formula:
        """The condition with the new names."""
        return replace_atoms(formula, self._leaf, self.type)

    def _leaf(self, part: ir.Atom | ir.Can) -> ir.Formula:
        if isinstance(part, ir.Has | ir.HasBelow):
            part = replace(part, privilege=self.privilege(part.privilege))
        elif isinstance(part, ir.Can):
            part = replace(part, operation=self.pair(part.target.type, part.operation)[1])
        return with_targets(part, self.target)

    def effect(self, effect: ir.Effect) -> ir.Effect:
        """The effect with the new names."""
        return replace(
            effect,
            what=self.privilege(effect.what),
            privileges=tuple(map(self.privilege, effect.privileges)),
            target=self.target(effect.target),
        )

    def rule(self, rule: ir.Rule) -> ir.Rule:
        """The row with the new names; texts stay as they were written."""
        entity, operation = self.pair(rule.entity, rule.operation)
        return replace(
            rule,
            entity=entity,
            operation=operation,
            gate=self.formula(rule.gate),
            requires=self.formula(rule.requires),
            each=None if rule.each is None else self.formula(rule.each),
            withs=tuple(replace(slot, types=tuple(map(self.type, slot.types))) for slot in rule.withs),
            effects=tuple(map(self.effect, rule.effects)),
            delegations=tuple(map(self.effect, rule.delegations)),
        )

    def filter(self, filter_: ir.SqlFilter) -> ir.SqlFilter:
        """The row filter or column mask with the new names of types."""
        return replace(filter_, entity=self.type(filter_.entity), parts=tuple(map(self._sql_part, filter_.parts)))

    def _sql_part(self, part: str | FilterWord | ir.Term) -> str | FilterWord | ir.Term:
        if not isinstance(part, ir.Term) or part.target is None:
            return part
        return replace(part, target=self.target(part.target))

    def program(self, program: ir.Program, aliases: Mapping[str, ir.Alias] | None = None) -> ir.Program:
        """The program with the new names. `aliases`: additional aliases of its privileges."""
        owner = program.semantics.owner
        semantics = program.semantics
        if owner is not None:
            semantics = replace(semantics, owner=replace(owner, holds=tuple(map(self.privilege, owner.holds))))
        own_aliases = {
            alias_.name: replace(alias_, of=self.privilege(alias_.of)) for alias_ in program.aliases.values()
        }
        privileges = {
            self.privilege(privilege.name): replace(
                privilege,
                name=self.privilege(privilege.name),
                on=tuple(map(self.type, privilege.on)),
                implies=tuple(map(self.privilege, privilege.implies)),
            )
            for privilege in program.privileges.values()
        }
        return replace(
            program,
            entities={
                self.type(entity.name): replace(
                    entity, name=self.type(entity.name), parent=entity.parent and self.type(entity.parent)
                )
                for entity in program.entities.values()
            },
            privileges=privileges,
            aliases={
                name: alias for name, alias in (own_aliases | dict(aliases or {})).items() if name not in privileges
            },
            sets={name: tuple(map(self.privilege, members)) for name, members in program.sets.items()},
            roles={
                role.name: replace(
                    role,
                    scopes=tuple(map(self.type, role.scopes)),
                    grants=tuple(
                        (self.type(type_), tuple(map(self.privilege, privileges_)))
                        for type_, privileges_ in role.grants
                    ),
                )
                for role in program.roles.values()
            },
            semantics=semantics,
            rules={self.pair(*pair): self.rule(rule) for pair, rule in program.rules.items()},
            filters=tuple(map(self.filter, program.filters)),
            attributes=replace(
                program.attributes,
                entity={
                    name: replace(attribute, on=tuple(map(self.type, attribute.on)))
                    for name, attribute in program.attributes.entity.items()
                },
            ),
        )


_BY_POLICY, _BY_CALLER, _BY_ALIAS = "`renamed_from` says so", "`--rename` says so", "one is an alias of the other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """Old name → new name, and who says so."""

    names: Renaming = field(default_factory=Renaming)
    aliases: Mapping[str, ir.Alias] = field(default_factory=dict)
    """Old names of privileges that both sides still accept, as aliases."""
    types_by: Mapping[str, str] = field(default_factory=dict)
    privileges_by: Mapping[str, str] = field(default_factory=dict)
    operations_by: Mapping[Pair, str] = field(default_factory=dict)


def declared_renames(before: ir.Program, after: ir.Program, given: Mapping[str, str] | None = None) -> Renames:
    """The names that changed. `given`: the caller's renames, old name to new: of types, privileges, or `type/operation`.

    A name that both policies have is not renamed.
    """
    said = given or {}
    types = {old: new for old, new in said.items() if old in before.entities and new in after.entities}
    types_by = dict.fromkeys(types, _BY_CALLER)
    for new, type_ in after.entities.items():
        old = type_.renamed_from
        if old is None or old in types or old not in before.entities or old in after.entities:
            continue
        if new not in before.entities:
            types[old], types_by[old] = new, _BY_POLICY
    privileges = {old: new for old, new in said.items() if old in before.privileges and new in after.privileges}
    privileges_by = dict.fromkeys(privileges, _BY_CALLER)
    aliases: dict[str, ir.Alias] = {}
    for old, new, reason in _privileges(before, after):
        if old not in privileges and new not in privileges.values():
            privileges[old], privileges_by[old] = new, reason
            if reason is _BY_ALIAS:
                aliases[old] = ir.Alias(name=old, of=new)
    names = Renaming(types=types, privileges=privileges)
    operations: dict[Pair, str] = {}
    operations_by: dict[Pair, str] = {}
    earlier_types = {new: old for old, new in types.items()}
    for (type_name, operation), rule in after.rules.items():
        pair = earlier_types.get(type_name, type_name), rule.renamed_from or ""
        if pair in before.rules and (type_name, pair[1]) not in after.rules:
            operations[pair], operations_by[pair] = operation, _BY_POLICY
    for old, new in said.items():
        entity, _, operation = old.partition("/")
        later = new.rpartition("/")[2]
        if (entity, operation) in before.rules and (names.type(entity), later) in after.rules:
            operations[entity, operation], operations_by[entity, operation] = later, _BY_CALLER
    return Renames(
        names=replace(names, operations=operations),
        aliases=aliases,
        types_by=types_by,
        privileges_by=privileges_by,
        operations_by=operations_by,
    )


def check_renames(renames: Mapping[str, str], pairs: Sequence[tuple[ir.Program, ir.Program]]) -> None:
    """Raise UsageError for a name that renames nothing in any pair of policies."""
    for old, new in renames.items():
        if any(_applies(old, new, before, after) for before, after in pairs):
            continue
        known = [name for before, _ in pairs for name in _names(before)]
        later = [name for _, after in pairs for name in _names(after)]
        at_fault, names = (old, known) if old not in known else (new, later)
        raise UsageError(
            f"`--rename {old}={new}`: no policy {'before' if at_fault is old else 'after'} has a type, a privilege or an operation `{at_fault}`"
            + hint(at_fault, names)
        )


def _applies(old: str, new: str, before: ir.Program, after: ir.Program) -> bool:
    found = declared_renames(before, after, {old: new})
    by = (*found.types_by.values(), *found.privileges_by.values(), *found.operations_by.values())
    return _BY_CALLER in by


def _names(program: ir.Program) -> list[str]:
    return [*program.entities, *program.privileges, *("/".join(pair) for pair in program.rules)]


def _privileges(before: ir.Program, after: ir.Program) -> Iterator[tuple[str, str, str]]:
    """Old and new names of privileges that only one side has, and who says that they are the same."""
    for new, privilege in after.privileges.items():
        old = privilege.renamed_from
        if (
            old is not None
            and old in before.privileges
            and old not in after.privileges
            and new not in before.privileges
        ):
            yield old, new, _BY_POLICY
    for old in before.privileges:
        new_name = _by_alias(before, after, old)
        if old not in after.privileges and new_name is not None and new_name not in before.privileges:
            yield old, new_name, _BY_ALIAS


def _by_alias(before: ir.Program, after: ir.Program, name: str) -> str | None:
    """The new name, if one side has the other's name as an alias."""
    if name in after.aliases:
        return after.aliases[name].of
    return next(
        (alias.name for alias in before.aliases.values() if alias.of == name and alias.name in after.privileges), None
    )
