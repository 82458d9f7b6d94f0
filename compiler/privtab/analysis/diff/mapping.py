"""Renames entity types, privileges and operations in a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from privtab.ir.formula import mapped, with_targets
from privtab.ir.nodes import (
    Alias,
    Atom,
    Can,
    Effect,
    Formula,
    Has,
    HasBelow,
    Program,
    Rule,
    SqlFilter,
    Target,
    Term,
)
from privtab.sql_text import Word


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

    def target(self, target: Target) -> Target:
        """The target with its new type."""
        return target if target.type not in self.types else replace(target, type=self.types[target.type])

    def formula(self, formula: Formula) -> Formula:
        """The condition with the new names."""
        return mapped(formula, self._leaf, self.type)

    def _leaf(self, part: Atom | Can) -> Formula:
        if isinstance(part, Has | HasBelow):
            part = replace(part, privilege=self.privilege(part.privilege))
        elif isinstance(part, Can):
            part = replace(part, operation=self.pair(part.target.type, part.operation)[1])
        return with_targets(part, self.target)

    def effect(self, effect: Effect) -> Effect:
        """The effect with the new names."""
        return replace(
            effect,
            what=self.privilege(effect.what),
            privileges=tuple(map(self.privilege, effect.privileges)),
            target=self.target(effect.target),
        )

    def rule(self, rule: Rule) -> Rule:
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

    def filter(self, filter_: SqlFilter) -> SqlFilter:
        """The row filter or column mask with the new names of types."""
        return replace(filter_, entity=self.type(filter_.entity), parts=tuple(map(self._sql_part, filter_.parts)))

    def _sql_part(self, part: str | Word | Term) -> str | Word | Term:
        if not isinstance(part, Term) or part.target is None:
            return part
        return replace(part, target=self.target(part.target))

    def program(self, program: Program, aliases: Mapping[str, Alias] | None = None) -> Program:
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
                    scope=role.scope and self.type(role.scope),
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
