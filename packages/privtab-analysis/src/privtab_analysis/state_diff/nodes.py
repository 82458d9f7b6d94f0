"""The difference between two states: rows, and the decisions that they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import islice, product
from math import prod

from privtab.base import Entity, GivenAttributes, Vocabulary, dataclass
from privtab.ir import RESOURCE, Rule
from privtab.state import RowLocation
from privtab_analysis.row_sentences import row_sentence
from privtab_analysis.state_diff.entities import EntityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row that only one of two states has."""

    table: str
    cells: Mapping[str, str]
    added: bool
    place: RowLocation | None = field(default=None, compare=False)
    value: object = field(default=None, compare=False, repr=False)
    """The row as the state holds it."""

    @property
    def text(self) -> str:
        """The row as a sentence."""
        return row_sentence(self.table, self.cells)

    def __hash__(self) -> int:
        return hash((self.table, self.added, *self.cells.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAccess:
    """An operation that some subjects gained or lost on some entities, because of the same rows.

    `flags`: the flags with which alone it changed. `objects`: the `with` objects by slot; any of them may be combined with
    any entity. `rows`: a smallest set of changed rows that alone makes the difference.
    """

    gained: bool
    rule: Rule
    sensitive: bool
    unnamed: bool
    vocabulary: Vocabulary
    flags: tuple[str, ...]
    given: GivenAttributes
    """Values that a request gives, with which alone it changed; the fewest."""
    subjects: tuple[str, ...]
    """`user:alice`; `group:hr` for a user whose request says that they are in this group; `user:*` for everyone whom no row names."""
    entities: EntityClass
    objects: Mapping[str, EntityClass]
    rows: tuple[ChangedRow, ...]

    @property
    def places(self) -> int:
        """The number of entities, or of combinations of an entity and `with` objects."""
        return self.entities.count * prod(class_.count for class_ in self.objects.values())

    @property
    def count(self) -> int:
        """The number of permissions: of subjects times `places`."""
        return len(self.subjects) * self.places

    def requested_objects(self, most: int | None = None) -> Iterator[dict[str, Entity]]:
        """The entities by slot, at most so many."""
        pools = [[*islice(self._resources(), most)], *([*islice(class_, most)] for class_ in self.objects.values())]
        slots = (RESOURCE, *self.objects)
        yield from islice((dict(zip(slots, combination, strict=True)) for combination in product(*pools)), most)

    def _resources(self) -> Iterator[Entity]:
        if not self.unnamed:
            return iter(self.entities)
        ids = (self.vocabulary.shapes[self.rule.entity].unnamed_in(entity.type, entity.id) for entity in self.entities)
        return (Entity(self.rule.entity, id_) for id_ in ids if id_ is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """The changes from one state to another."""

    rows: tuple[ChangedRow, ...]
    access: tuple[ChangedAccess, ...] = ()
    decided: int = 0
    """The number of questions that were decided."""
    undecided: tuple[str, ...] = ()
    """The parts that were not compared, with reasons; empty if the difference is complete."""
    notes: tuple[str, ...] = ()

    def count(self, *, gained: bool) -> int:
        """The number of permissions gained or lost."""
        return sum(change.count for change in self.access if change.gained is gained)
