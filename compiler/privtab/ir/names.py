"""Names of privileges, what each stands for and what a grant by it gives, and the texts of atoms.

Row filters and column masks: their lists, which are tried before one, and their texts as policies have them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from privtab.base.attributes import AttributeValue
from privtab.base.caching import once
from privtab.base.names import quoted_privilege
from privtab.ir import nodes as ir
from privtab.ir.formula import level_name
from privtab.ir.shapes import Leaf

_CREATING = frozenset(
    ["create", "add", "register", "make", "new", "deploy", "submit", "upload", "import", "copy", "clone", "run", "sign"]
)


def undeclared_creation(operation: str) -> ir.Creation:
    """The confidence that an operation creates its entity where no declaration says so: by the first word of its name."""
    return "surely" if operation.partition("_")[0] in _CREATING else "perhaps"


class PrivilegeNames:
    """Looks up privileges, aliases and sets of one policy."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._members: dict[str, tuple[str, ...] | None] = {}
        self._giving: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def privileges(self, name: str) -> tuple[str, ...] | None:
        """The privileges that a name stands for: itself, an alias's privilege or a set's members; None if the name is unknown."""
        if name not in self._members:
            self._members[name] = self._privileges(name, frozenset())
        return self._members[name]

    def _privileges(self, name: str, visiting: frozenset[str]) -> tuple[str, ...] | None:
        if name in self.program.grantable:
            return (name,)
        parts = (self.program.aliases[name].of,) if name in self.program.aliases else self.program.sets.get(name)
        if parts is None or name in visiting:
            return None
        members = [self._privileges(part, visiting | {name}) or () for part in parts]
        return tuple(dict.fromkeys(member for inner in members for member in inner))

    def known_privileges(self) -> tuple[str, ...]:
        """Every name that a grant may use."""
        return (*self.program.grantable, *self.program.aliases, *self.program.sets)

    def privileges_of(self, name: str, type_: str, effect: str) -> tuple[str, ...]:
        """The privileges that a row of this name allows or denies on a type.

        They are those that the name stands for and that can be granted on the type; if it allows, also what these imply there.
        """
        privileges = self.program.privileges
        members = [privilege for privilege in self.privileges(name) or () if type_ in privileges[privilege].on]
        if effect == "allow":
            members += [p for member in members for p in privileges[member].implies if type_ in privileges[p].on]
        return tuple(dict.fromkeys(members))

    def giving(self, privilege: str, type_: str, effect: str) -> tuple[str, ...]:
        """The names whose rows allow or deny a privilege on a type: those for which `given` has it."""
        key = privilege, type_, effect
        if key not in self._giving:
            names = self.known_privileges()
            self._giving[key] = tuple(name for name in names if privilege in self.privileges_of(name, type_, effect))
        return self._giving[key]

    def names(self) -> dict[str, tuple[str, ...]]:
        """For each name that a grant may use, the privileges that a row of this name allows on one type or another."""
        found = {name: self.privileges(name) or () for name in self.known_privileges()}
        implied = {name: privilege.implies for name, privilege in self.program.privileges.items()}
        return {
            name: tuple(dict.fromkeys((*members, *(p for member in members for p in implied[member]))))
            for name, members in found.items()
        }

    @property
    def one_for_one(self) -> bool:
        """True if every name of a grant gives exactly the privilege of that name."""
        program = self.program
        return not program.aliases and not program.sets and not program.implies


@once
def privilege_names(program: ir.Program) -> PrivilegeNames:
    """The names of a policy; looked up once for all that share them.

    Example:
        privilege_names(program).privileges("ALL")
    """
    return PrivilegeNames(program)


def effect_texts(rule: ir.Rule) -> tuple[str, ...]:
    """The changes on success, with types as targets: `grant ALL (namespace)`, `delegate owner (catalog)`.

    Example:
        effect_texts(program.rules["table", "create"])
    """
    return tuple(f"{effect.text} ({target_text(effect.target, rule)})" for effect in (*rule.effects, *rule.delegations))


def target_text(target: ir.Target, rule: ir.Rule, types: Mapping[str, str] | None = None) -> str:
    """The text of a target: its type; for a `with` object its name, and `name.type` for what lies above it."""
    if target.slot == ir.RESOURCE:
        return level_name(target)
    slot = next(w for w in rule.withs if w.name == target.slot)
    object_type = (types or {}).get(slot.name, slot.types[0])
    is_nearest_own = target.type == object_type and target.level == "nearest"
    return slot.name if is_nearest_own else f"{slot.name}.{level_name(target)}"


def atom_text(atom: Leaf, rule: ir.Rule, types: Mapping[str, str] | None = None) -> str:
    """The text of an atom, by types: `READ (namespace)`, `owner (catalog)`, `self`, `member (metalake)`.

    `types`: as for `minimal_sets`.

    Example:
        text = atom_text(atom, rule)
    """
    return atom_words(atom, lambda target: target_text(target, rule, types))


def compare_text(compare: ir.Compare, place: Callable[[ir.Target], str]) -> str:
    """The text of a comparison: `class (table) in {public, internal}`, `user.department = department (table)`, `editor in user.roles`."""
    right = compare.right
    if compare.operator == "contains":
        return f"{constants_text(compare)} in {term_text(compare.left, place)}"
    operand = term_text(right, place) if isinstance(right, ir.Term) else constants_text(compare)
    return f"{term_text(compare.left, place)} {compare.operator} {operand}"


def term_text(term: ir.Term, place: Callable[[ir.Target], str]) -> str:
    """The text of an attribute in a comparison."""
    return f"{term.kind}.{term.attribute}" if term.target is None else f"{term.attribute} ({place(term.target)})"


def value_text(value: AttributeValue) -> str:
    """The value of an attribute as a condition spells it; a set as a list.

    >>> value_text(True), value_text(["eu", "us"])
    ('true', '{eu, us}')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value) if _is_word(value) else json.dumps(value, ensure_ascii=False)
    return f"{{{', '.join(map(value_text, value))}}}"


def constants_text(compare: ir.Compare) -> str:
    """The text of the constants of a comparison; texts that are no words are quoted."""
    assert not isinstance(compare.right, ir.Term)
    texts = list(map(value_text, compare.right))
    return f"{{{', '.join(texts)}}}" if compare.operator == "in" else texts[0]


def _is_word(constant: object) -> bool:
    return not isinstance(constant, str) or constant.isidentifier()


def atom_words(atom: Leaf, place: Callable[[ir.Target], str]) -> str:
    """The text of an atom, the same in every output; `place` returns the text of its target.

    >>> atom_words(ir.Owner(target=ir.Target(slot="", type="table")), lambda target: target.type)
    'owner (table)'
    """
    match atom:
        case ir.ByType():
            return atom.text
        case ir.Compare():
            return compare_text(atom, place)
        case _:
            names = {name: quoted_privilege(value) for name, value in atom.names.items()}
            return atom.kind.words.format(**names, place="".join(map(place, atom.targets)))


def condition_text(formula: ir.Formula, rule: ir.Rule, *, inside: bool = False) -> str:
    """The text of a condition, as tables write it. `inside`: put one of several parts in parentheses.

    Example:
        text = condition_text(rule.item_condition, rule)
    """
    match formula:
        case ir.And(parts=parts) | ir.Or(parts=parts):
            if not parts:
                return "anyone" if isinstance(formula, ir.And) else "nobody"
            word = " and " if isinstance(formula, ir.And) else " or "
            text = word.join(condition_text(part, rule, inside=True) for part in parts)
            return f"({text})" if inside and len(parts) > 1 else text
        case ir.When():
            text = f"{condition_text(formula.body, rule, inside=True)} when {formula.flag}"
            return f"({text})" if inside else text
        case ir.Can():
            return f"can {formula.operation} ({target_text(formula.target, rule)})"
        case ir.Self(target=target) if target.slot != ir.RESOURCE or target.type != rule.entity:
            return f"self ({target.type})"
        case ir.ByType(text=""):  # read from JSON, which has no texts
            types: dict[str, list[str]] = {}
            for type_, case_ in formula.cases:
                types.setdefault(condition_text(case_, rule), []).append(type_)
            words = "; ".join(f"{'/'.join(of)}: {text}" for text, of in types.items())
            return f"[by {formula.slot}: {words}]"
        case _:
            return atom_text(formula, rule)
