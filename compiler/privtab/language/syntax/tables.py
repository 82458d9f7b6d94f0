"""Read the sections of a policy file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, cast

from privtab.base.diagnostics import Located, Severity
from privtab.base.effects import PRINCIPAL_TABLES
from privtab.base.names import PRINCIPAL_KINDS
from privtab.language.findings import unreadable, unsound_rows
from privtab.language.syntax import nodes
from privtab.language.syntax.attributes import read_attributes, read_conditions, read_privileges, read_sets
from privtab.language.syntax.keys import SECTIONS
from privtab.language.syntax.reader import Fields, PolicyReader
from privtab.language.syntax.rows import read_filters, read_rows
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode


def _conflicts(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.ConflictDecl]:
    if not isinstance(node, SequenceNode):
        reader.wrong(node, "`conflicts`", "a list", "write `- {operations: [TYPE/OPERATION, TYPE/OPERATION]}`")
        return
    for item in node.items:
        fields = reader.fields(item, "conflict", "a conflict") or {}
        why = reader.optional_text(fields, "why")
        at_most = _count(reader, fields["at_most"][1]) if "at_most" in fields else 1
        operations = _operations(reader, fields["operations"][1]) if "operations" in fields else None
        if operations is None or at_most is None:
            continue
        if len(operations) > at_most:
            yield nodes.ConflictDecl(operations=operations, at_most=at_most, span=operations[0].span, why=why)
            continue
        message = f"{len(operations)} operation{'s' if len(operations) != 1 else ''}, of which {at_most} may be held"
        reader.refuse(fields["operations"][1], message, "name two at least, and more than `at_most`")


def _count(reader: PolicyReader, node: YamlNode) -> int | None:
    match node:
        case ScalarNode(value=int(number)) if not isinstance(node.value, bool) and number >= 1:
            return number
        case ScalarNode(value=int()) if not isinstance(node.value, bool):
            message = f"`{node.text}` operations cannot be held"
            reader.refuse(node, message, "a number from 1 on; left off, it is 1")
        case _:
            reader.wrong(node, "`at_most`", "a number")
    return None


def _operations(reader: PolicyReader, node: YamlNode) -> tuple[nodes.Word, ...] | None:
    """The operations, written as `TYPE/OPERATION`, without duplicates; names are resolved later."""
    words = reader.words(node, "`operations`")
    if words is None:
        return None
    valid: dict[str, nodes.Word] = {}
    mistakes_before = reader.mistakes
    for word in words:
        type_, slash, operation = word.value.partition("/")
        if not (type_ and slash and operation) or "/" in operation:
            advice = "an operation of a type is written `TYPE/OPERATION`"
            reader.refuse(word.span, f"`{word.value}` is not an operation", advice)
        elif word.value in valid:
            reader.refuse(word.span, f"`{word.value}` occurs twice", "name another, or drop it")
        else:
            valid[word.value] = word
    return tuple(valid.values()) if reader.mistakes == mistakes_before else None


T = TypeVar("T")
_STATE_TABLES = frozenset((*PRINCIPAL_TABLES, "service_admins", "attributes", "entities"))
_TARGET_WORDS = frozenset({"parent", "entity", "any"})


def read_tables(reader: PolicyReader, root: YamlNode) -> nodes.Tables | None:
    """Read the whole file; None if it is not a mapping or lacks the keys that identify it."""
    if isinstance(root, MappingNode) and not {key.text for key, _ in root.entries} & {"privtab", "system", "entities"}:
        start = reader.source.span(root.start, root.start + 1)
        if root.entries and all(key.text in _STATE_TABLES for key, _ in root.entries):
            reader.refuse(start, "this is a state, not a policy", "give it as the state: `--state FILE`")
            return None
        reader.take(unreadable.missing_key(start, "privtab", "a policy file", "privtab: 1"))
        return None
    fields = reader.fields(root, "policy", "a policy file")
    if fields is None:
        return None
    rejected: set[str] = set()
    none: tuple[tuple[nodes.TableDecl, ...], tuple[nodes.RowDecl, ...]] = ((), ())

    def section(key: str, read: Callable[[YamlNode], T], absent: T) -> T:
        if key not in fields:
            return absent
        node = fields[key][1]
        if node.empty and key not in ("system", "version"):
            if key == "entities":
                reader.wrong(node, "`entities`", "a mapping")
                rejected.add(key)
            return absent
        if key in SECTIONS and not isinstance(node, MappingNode):
            reader.wrong(node, f"`{key}`", "a mapping", f"write `{SECTIONS[key]}`")
            rejected.add(key)
            return absent
        return read(node)

    if "privtab" in fields:
        _format(reader, fields["privtab"][1])
    rejected.update(key for key in ("entities",) if key not in fields)
    if reader.unknown_values:
        rejected.update({"sources", "privileges", "sets", "conditions", "core", "tables", "any"} - fields.keys())
    file_start = reader.source.span(0, 0)
    tables, any_in_tables = section("tables", lambda n: _tables(reader, n, rejected), none)
    any_: tuple[nodes.RowDecl, ...] = section("any", lambda n: read_rows(reader, n, "`any`", kind="row of any"), ())
    types: tuple[nodes.TypeDecl, ...] = section("types", lambda n: tuple(_types(reader, n)), ())
    system = section("system", lambda n: reader.name(n, "a system", "snake"), None)
    version = section("version", reader.version, None)
    return nodes.Tables(
        source=reader.source,
        system=system or Located("", file_start),
        version=version or Located("", file_start),
        title=section("title", lambda n: reader.text(n, "`title`"), None),
        sources=section("sources", lambda n: _sources(reader, n, rejected), ()),
        entities=section("entities", lambda n: _entities(reader, n), ()),
        types=types,
        privileges=section("privileges", lambda n: read_privileges(reader, n, rejected), ()),
        sets=section("sets", lambda n: tuple(read_sets(reader, n)), ()),
        conditions=section("conditions", lambda n: tuple(read_conditions(reader, n)), ()),
        attributes=section("attributes", lambda n: read_attributes(reader, n, rejected), ()),
        semantics=section("semantics", lambda n: _semantics(reader, n), nodes.SemanticsDecl()),
        core=section("core", lambda n: read_rows(reader, n, "`core`"), ()),
        tables=(*tables, *(nodes.TableDecl(entity=type_.name, rows=type_.filters) for type_ in types if type_.filters)),
        any=_in_order(any_, any_in_tables),
        roles=section("roles", lambda n: tuple(_roles(reader, n)), ()),
        variants=section("variants", lambda n: tuple(_variants(reader, n)), ()),
        dialect=section("dialect", lambda n: reader.choice(n, "dialect", "`dialect`"), None),
        conflicts=section("conflicts", lambda n: tuple(_conflicts(reader, n)), ()),
        unreadable=frozenset(rejected),
        lost=frozenset(reader.lost),
        any_privilege=reader.any_privilege,
        named_privilege=reader.named_privilege,
        broken=any(d.severity is Severity.ERROR for d in reader.found),
    )


def _format(reader: PolicyReader, node: YamlNode) -> None:
    if not isinstance(node, ScalarNode) or not isinstance(node.value, int) or isinstance(node.value, bool):
        reader.wrong(node, "`privtab`", "the number of the format", "write `privtab: 1`")
    elif node.value != 1:
        message = f"unknown format {node.value}"
        reader.refuse(node, message, "this privtab reads format 1: `privtab: 1`")


def _sources(reader: PolicyReader, node: YamlNode, rejected: set[str]) -> tuple[tuple[nodes.Word, nodes.Word], ...]:
    sources: list[tuple[nodes.Word, nodes.Word]] = []
    mistakes_before = reader.mistakes
    for key, value in reader.entries(node, "`sources`"):
        name = reader.name(key, "a source") if isinstance(key.value, str) else Located(key.text, reader.span(key))
        fields: Fields | None
        if isinstance(value, ScalarNode) and isinstance(value.value, str):
            fields = {"document": (key, value)}
        else:
            fields = reader.fields(value, "source document", "a source")
        if name is None or not fields or "document" not in fields:
            continue
        document = reader.text(fields["document"][1], "`document`")
        if document is not None:
            sources.append((name, Located(document, reader.span(fields["document"][1]))))
    if reader.mistakes > mistakes_before:
        rejected.add("sources")
    return tuple(sources)


def _entities(reader: PolicyReader, root: YamlNode) -> tuple[nodes.EntityDecl, ...]:
    """The forest in the order of the file, parents before children."""
    first: dict[str, nodes.Word] = {}
    entities: list[nodes.EntityDecl] = []
    todo: list[tuple[ScalarNode | None, YamlNode, str | None]] = [(None, root, None)]
    while todo:
        key, node, parent = todo.pop()
        if key is not None:
            name = _entity_name(reader, key, first)
            if name is not None:
                entities.append(nodes.EntityDecl(name=name, parent=parent))
                parent = name.value
            elif key.text in first:
                parent = key.text
        if node.empty and key is not None:
            continue
        if not isinstance(node, MappingNode):
            what = f"`{key.text}`" if key is not None else "`entities`"
            type_names = _plain_words(node)
            advice = "write {" + ", ".join(f"{word}: " for word in type_names) + "}" if type_names else None
            reader.wrong(node, what, "a mapping of the types inside it, or nothing", advice)
            reader.lost.update(type_names)
            for word in type_names:
                if word in first or not isinstance(node, SequenceNode):
                    continue
                entities.append(nodes.EntityDecl(name=Located(word, reader.span(node)), parent=parent))
            continue
        todo.extend((k, v, parent) for k, v in reversed(node.entries))
    return tuple(entities)


def _plain_words(node: YamlNode) -> tuple[str, ...]:
    items = node.items if isinstance(node, SequenceNode) else (node,)
    return tuple(i.text for i in items if isinstance(i, ScalarNode) and isinstance(i.value, str))


def _entity_name(reader: PolicyReader, key: ScalarNode, first: dict[str, nodes.Word]) -> nodes.Word | None:
    name = reader.name(key, "an entity type", "snake")
    if name is None:
        return None
    if name.value in _TARGET_WORDS:
        advice = f"`{name.value}` has a meaning of its own in conditions"
        reader.take(unreadable.bad_name(name.span, "an entity type", name.value, advice))
        reader.lost.add(name.value)
        return None
    if name.value in first:
        reader.take(unsound_rows.duplicate_name(name.span, "entity type", name.value, first[name.value].span))
        return None
    first[name.value] = name
    return name


def _types(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.TypeDecl]:
    for key, value in reader.entries(node, "`types`"):
        name = Located(key.text, reader.span(key))
        fields = reader.fields(value, "type", f"the type `{key.text}`")
        if fields is None:
            continue
        single = reader.flag(fields["single"][1], "`single`") if "single" in fields else None
        nested = reader.levels(fields["nested"][1], "`nested`") if "nested" in fields else None
        flat = reader.flag(fields["flat"][1], "`flat`") if "flat" in fields else None
        principal = reader.choice(fields["principal"][1], "principal", "`principal`") if "principal" in fields else None
        yield nodes.TypeDecl(
            name=name,
            single=single is not None and single.value,
            nested=nested,
            flat=flat if flat is not None and flat.value else None,
            title=reader.optional_text(fields, "title"),
            principal=cast(Literal["user", "group", "role", "none"] | None, principal),
            renamed_from=reader.former_name(fields, "an entity type", "snake"),
            filters=tuple(read_filters(reader, fields)),
        )
        reader.optional_text(fields, "note")


def _semantics(reader: PolicyReader, node: YamlNode) -> nodes.SemanticsDecl:
    fields = reader.fields(node, "semantics", "`semantics`")
    if fields is None:
        return nodes.SemanticsDecl(owner_known=False)
    mistakes_before = reader.mistakes
    owner = _owner(reader, fields["owner"][1]) if "owner" in fields else None
    owner_known = reader.mistakes == mistakes_before
    everyone = reader.name(fields["everyone"][1], "a group", "privilege") if "everyone" in fields else None

    def word(name: str) -> str | None:
        return reader.choice(fields[name][1], name, f"`{name}`") if name in fields else None

    def words(name: str, shape: str | None = None) -> tuple[Any, ...]:
        found = reader.choices(fields[name][1], shape or name, f"`{name}`") if name in fields else None
        return tuple(dict.fromkeys(word.value for word in found or ()))

    gate, alternative = _gate(reader, fields["gate"][1]) if "gate" in fields else (None, None)
    assignees = words("assignees", "kinds") or PRINCIPAL_KINDS
    if assignees == ("role",):
        message = "roles could be assigned to roles alone, so that nobody would ever hold one"
        hint = "name who holds roles as well: `assignees: [user, role]`"
        reader.take(unreadable.wrong_value_other(reader.span(fields["assignees"][1]), message, hint))
    return nodes.SemanticsDecl(
        inheritance=cast(Literal["none", "down"], word("inheritance") or "none"),
        deny=cast(Literal["none", "overrides"], word("deny") or "none"),
        transitive=word("implication") == "transitive",
        owner=owner,
        subjects=_subjects(reader, fields["subjects"][1]) if "subjects" in fields else ("user",),
        grantees=words("grantees", "kinds") or PRINCIPAL_KINDS,
        assignees=assignees,
        groups=words("groups") or ("state",),
        hierarchy=words("hierarchy"),
        active_roles=cast(Literal["none", "request", "request_grants"], word("active_roles") or "none"),
        everyone=everyone,
        gate=gate,
        alternative=alternative,
        owner_known=owner_known,
    )


def _subjects(reader: PolicyReader, node: YamlNode) -> tuple[str, ...]:
    items = node.items if isinstance(node, SequenceNode) else (node,)
    names = (reader.name(item, "a type of subjects", "name") for item in items)
    return tuple(dict.fromkeys(name.value for name in names if name is not None)) or ("user",)


def _gate(reader: PolicyReader, node: YamlNode) -> tuple[nodes.ConditionCell | None, nodes.ConditionCell | None]:
    """Read `and`, which every row requires as well, and `or`, which suffices for every row."""
    if isinstance(node, ScalarNode) and node.value == "none":
        return None, None
    if not isinstance(node, MappingNode):
        return reader.condition(node, "`gate`"), None
    if not node.entries:
        reader.refuse(
            node, "`gate` is empty", "write `gate: {and: CONDITION, or: CONDITION}`, with one of them or both"
        )
    fields = reader.fields(node, "gate", "`gate`") or {}
    parts = {word: reader.condition(node, f"`{word}` of `gate`") for word, (_, node) in fields.items()}
    return parts.get("and"), parts.get("or")


def _owner(reader: PolicyReader, node: YamlNode) -> nodes.OwnerDecl | None:
    if isinstance(node, ScalarNode) and node.value == "none":
        return None
    if not isinstance(node, MappingNode):
        reader.wrong(node, "`owner`", "`none` or a mapping", "write `owner: {creator: true}`")
        return None
    fields = reader.fields(node, "ownership", "`owner`") or {}
    return nodes.OwnerDecl(
        kinds=reader.choices(fields["kinds"][1], "kinds", "`kinds`") if "kinds" in fields else None,
        creator=_creator(reader, fields["creator"][1]) if "creator" in fields else None,
        holds=(reader.words(fields["holds"][1], "`holds`") or ()) if "holds" in fields else (),
    )


def _creator(reader: PolicyReader, node: YamlNode) -> Located[bool | Literal["active_role"]] | None:
    if isinstance(node, ScalarNode) and node.value == "active_role":
        return Located("active_role", reader.span(node))
    flag = reader.flag(node, "`creator`", ("active_role",))
    return None if flag is None else Located(flag.value, flag.span)


def _tables(
    reader: PolicyReader, node: YamlNode, rejected: set[str] | None = None
) -> tuple[tuple[nodes.TableDecl, ...], tuple[nodes.RowDecl, ...]]:
    """The tables of entity types, and the rows under `any`, which is not an entity type."""
    tables: list[nodes.TableDecl] = []
    any_: tuple[nodes.RowDecl, ...] = ()
    for key, value in reader.entries(node, "`tables`"):
        readable = isinstance(value, MappingNode) or value.empty
        if key.text == "any":
            any_ = () if value.empty else read_rows(reader, value, "`any`", kind="row of any")
            if not readable and rejected is not None:
                rejected.add("any")
            continue
        rows = () if value.empty else read_rows(reader, value, f"the table `{key.text}`")
        tables.append(nodes.TableDecl(entity=Located(key.text, reader.span(key)), rows=rows, readable=readable))
    return tuple(tables), any_


def _in_order(outside: tuple[nodes.RowDecl, ...], inside: tuple[nodes.RowDecl, ...]) -> tuple[nodes.RowDecl, ...]:
    """The rows from both places for `any`, in the order of the file."""
    return tuple(sorted((*outside, *inside), key=lambda row: row.span)) if outside and inside else outside or inside


def _roles(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.RoleDecl]:
    for key, value in reader.entries(node, "`roles`"):
        name = reader.name(key, "a role")
        if name is None:
            continue
        if value.empty:
            yield nodes.RoleDecl(name=name, scopes=(), grants=())
            continue
        fields = reader.fields(
            value, "role", f"the role `{key.text}`", f"write `{key.text}: {{grants: {{TYPE: [PRIVILEGE]}}}}`"
        )
        if fields is None:
            continue
        reader.optional_text(fields, "note")
        yield nodes.RoleDecl(
            name=name,
            scopes=(reader.words(fields["scope"][1], "`scope`") or ()) if "scope" in fields else (),
            grants=tuple(_role_grants(reader, fields["grants"][1])) if "grants" in fields else (),
            title=reader.optional_text(fields, "title"),
        )


def _role_grants(reader: PolicyReader, node: YamlNode) -> Iterator[tuple[nodes.Word, tuple[nodes.Word, ...]]]:
    for key, value in reader.entries(node, "`grants` of a role"):
        words: tuple[nodes.Word, ...] | None
        if isinstance(value, ScalarNode) and isinstance(value.value, str) and "+" in value.text:
            words = tuple(reader.split(value, "+"))
        elif isinstance(value, SequenceNode) and not value.items:
            words = ()
        else:
            words = reader.words(value, f"`{key.text}`")
        if words is not None:
            yield Located(key.text, reader.span(key)), words


def _variants(reader: PolicyReader, node: YamlNode) -> Iterator[nodes.VariantDecl]:
    for key, value in reader.entries(node, "`variants`"):
        name = reader.name(key, "a variant")
        fields = reader.fields(value, "variant", f"the variant `{key.text}`")
        if name is None or fields is None:
            continue
        core: tuple[nodes.RowDecl, ...] = read_rows(reader, fields["core"][1], "`core`") if "core" in fields else ()
        any_ = read_rows(reader, fields["any"][1], "`any`", kind="row of any") if "any" in fields else ()
        tables, any_in_tables = _tables(reader, fields["tables"][1]) if "tables" in fields else ((), ())
        reader.optional_text(fields, "note")
        yield nodes.VariantDecl(
            name=name,
            title=reader.optional_text(fields, "title"),
            tables=tables,
            core=core,
            any=_in_order(any_, any_in_tables),
            roles=tuple(_roles(reader, fields["roles"][1])) if "roles" in fields else (),
        )
