"""Names documents: the kinds of objects of a system, for all documents in its folder. `docs/reference/names.md` describes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from privtab.base import Documents, SourceFile, Span, is_wildcard
from privtab.language import DocumentProblem, DocumentReader, YamlNode

MARK = "names"
KEYS = ("title", "case", "wildcards", "macros", "kinds", "reserved", "queries")
KIND = ("type", "path", "privileges", "holds", "sign", "reads")
CHANGES = "names somebody or something else for each request"
"""The words of reports about a name with a macro."""
_ESCAPE = re.compile(r"(%[0-9A-F]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKind:
    """A kind of objects."""

    types: tuple[str, ...]
    """The types that it may be in a policy: the first that the policy has."""
    path: tuple[str, ...]
    """What the names of its path are names of, from the outermost down."""
    privileges: tuple[str, ...]
    holds: tuple[tuple[str, str], ...]
    """Objects that are this one: those that have this name of this kind on their path."""
    sign: str
    """The sign behind which names of other views of its contents follow its own: `orders$files` of `orders`."""
    reads: str
    """The operation by which the contents are read."""
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The kinds of objects of a system by name; no kinds for a system without a document."""

    kinds: Mapping[str, NamedKind] = field(default_factory=dict)
    folded: bool = False
    """True if the system compares names without case: a state has them in lower case."""
    wildcards: str = ""
    """Signs by which one name of the system stands for several: of `*`, `?` and `%`."""
    macros: tuple[str, ...] = ()
    """Texts in names that are other names for each request."""
    reserved: tuple[str, ...] = ()
    """Names that no account can have; `pg_*` is every name that begins so."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """SQL that documents and targets share, by the name that stands for it in braces."""

    @property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """The path of each kind."""
        return {name: kind.path for name, kind in self.kinds.items()}

    @property
    def privileges(self) -> dict[str, tuple[str, ...]]:
        """The system's own privileges of each kind."""
        return {name: kind.privileges for name, kind in self.kinds.items()}

    def type_of(self, kind: str, types: Collection[str] = ()) -> str:
        """The type of a kind among those of a policy; without one there, its usual type."""
        known = self.kinds.get(kind)
        if known is None:
            return kind
        return next((type_ for type_ in known.types if type_ in types), known.types[0])

    def listed(self, types: Collection[str] = ()) -> list[dict[str, Any]]:
        """The kinds as expressions of documents have them, with their types among those of a policy."""
        return [
            {"kind": name, "type": self.type_of(name, types), "path": list(kind.path)}
            for name, kind in self.kinds.items()
        ]

    def entity(self, text: str, types: Collection[str] = ()) -> str:
        """The entity, `type:path`, of an object that a border names as `kind:path`."""
        kind, _, path = text.partition(":")
        names = path.split("/")
        of = self.kinds[kind].path if kind in self.kinds else ()
        for other, known in self.kinds.items():
            if any((name, value) in zip(of, names, strict=False) for name, value in known.holds):
                kind, names = other, names[: len(known.path)]
                break
        path = "/".join(names)
        if self.folded:
            path = "".join(part if _ESCAPE.fullmatch(part) else part.lower() for part in _ESCAPE.split(path))
        return f"{self.type_of(kind, types)}:{path}"

    def shows_another(self, text: str) -> bool:
        """Return whether a name of an object, `kind:path`, is another's with a view of its contents behind the sign."""
        kind, _, path = text.partition(":")
        of = self.kinds[kind].path if kind in self.kinds else ()
        signs = {name: known.sign for name, known in self.kinds.items() if known.sign}
        return any(signs.get(part, "\0") in name[1:] for part, name in zip(of, path.split("/"), strict=False))

    def changes(self, text: str) -> bool:
        """Return whether a text has a macro."""
        return any(macro in text for macro in self.macros)

    def stands_for_several(self, text: str) -> bool:
        """Return whether a name has a wildcard."""
        return any(sign in text for sign in self.wildcards)

    def is_reserved(self, name: str) -> bool:
        """Return whether no account can have the name."""
        return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in self.reserved)

    def filled(self, sql: str) -> str:
        """A query with the shared ones in the place of their names."""
        for name, query in self.queries.items():
            sql = sql.replace(f"{{{name}}}", query)
        return sql


def names_beside(document: Path) -> Names:
    """The names in the folder of a document. Raises PolicyInvalid with every finding."""
    path = document.parent / "names.yaml"
    return _read(SourceFile.load(path)) if path.is_file() else Names()


@cache
def names_of(system: str) -> Names:
    """The shipped names of a system."""
    return _read(SourceFile.load(Documents(MARK)[system]))


def _read(file: SourceFile) -> Names:
    begins = "a names document begins with `names: 1`"
    return DocumentReader.whole(file, begins, lambda found, root: _Reader(file, found).document(root))


class _Reader(DocumentReader):
    """The reader of names documents."""

    NAMES: ClassVar = {"N002": "bad-names-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "N002")

    def document(self, root: YamlNode) -> Names | None:
        """The whole document."""
        fields = self.fields(root, "a names document", (MARK, *KEYS), (MARK, "title", "kinds"))
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        self.text(fields["title"], "`title`")
        case = self.word(fields["case"], "`case`", ("same", "lower")) if "case" in fields else "same"
        kinds = {key.text: self.kind(key.text, node) for key, node in self.entries(fields["kinds"], "`kinds`")}
        wildcards = self.text(fields.get("wildcards"), "`wildcards`")
        if wildcards is not None and not all(map(is_wildcard, wildcards.value)):
            self.report("N002", wildcards.span, "`wildcards` are of the signs * ? %")
        queries = {key.value: query.value.strip() for key, query in self.pairs(fields.get("queries"), "`queries`")}
        return Names(
            kinds={name: kind for name, kind in kinds.items() if kind is not None},
            folded=case == "lower",
            wildcards=wildcards.value if wildcards else "",
            macros=tuple(text.value for text in self.texts(fields.get("macros"), "`macros`")),
            reserved=tuple(text.value for text in self.texts(fields.get("reserved"), "`reserved`")),
            queries=queries,
        )

    def kind(self, name: str, node: YamlNode) -> NamedKind | None:
        """Read one kind of objects."""
        fields = {} if node.empty else self.fields(node, f"`{name}`", KIND)
        if fields is None:
            return None
        lists = {key: tuple(text.value for text in self.texts(fields.get(key), f"`{key}`")) for key in KIND[:3]}
        sign, reads = (self.text(fields.get(key), f"`{key}`") for key in ("sign", "reads"))
        if (sign is None) != (reads is None) or (sign is not None and not sign.value):
            self.report("N002", node, f"`{name}` needs both `sign` and `reads`")
        return NamedKind(
            types=lists["type"] or (name,),
            path=lists["path"],
            privileges=lists["privileges"],
            holds=tuple((key.value, value.value) for key, value in self.pairs(fields.get("holds"), "`holds`")),
            sign="" if sign is None else sign.value,
            reads="" if reads is None else reads.value,
            span=self.span(node) if reads is None else reads.span,
        )
