"""The base of modules that `privtab stubs` writes: entities whose type is known to the type checker."""

from __future__ import annotations

from typing import ClassVar, Self

from privtab.names import encode_name
from privtab.request import Entity

__all__ = ["TypedEntity", "path_of"]


class TypedEntity(Entity):
    """An entity of one type; equal to a plain Entity of the same type and path."""

    __slots__ = ()
    TYPE: ClassVar[str]

    def __init__(self, path: str) -> None:
        """`path`: names from the root down joined by `/`, each percent-encoded."""
        super().__init__(self.TYPE, path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and (self.type, self.id) == (other.type, other.id)

    def __hash__(self) -> int:
        return hash((self.type, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.id,)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `type:path`. Raises ValueError if the type is another one."""
        entity = Entity.parse(text)
        if entity.type != cls.TYPE:
            raise ValueError(f"`{text}` is not a `{cls.TYPE}`")
        return cls(entity.id)


def path_of(*names: str) -> str:
    """The path of names that are not encoded yet.

    >>> path_of("m", "a/b")
    'm/a%2Fb'
    """
    return "/".join(encode_name(name) for name in names)
