"""Draws the reasons for a decision: from the user through groups and roles to rights on entities, and to the object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from privtab_analysis.answer_view import AnswerView
from privtab_analysis.changes import Assign, Change, Give, RemoveDenial, change_text
from privtab_analysis.explanation import Part

WIDTH, HEIGHT = 176, 42
"""The size of a box, in pixels."""
GAP, LINE = 120, 60
"""Between columns of boxes, and from one box to the one below."""
LETTERS, LABEL = 22, 15
"""The most letters that fit a box, and beside an arrow."""
MOST = 40
"""Maximum boxes of a picture."""
STYLES: Mapping[str, str] = {
    "held": "held",
    "denied": "denied",
    "missing": "missing: the first way to allow it",
    "within": "lies in",
}
"""The styles of arrows, with their meaning for the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A principal or an entity."""

    name: str
    kind: str
    text: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A row that leads from one to the other, or containment. `style`: one of `STYLES`."""

    path: str
    style: str
    label: str
    title: str
    x: int
    y: int


@dataclass(slots=True)
class Picture:
    """Boxes in columns, arrows between them."""

    boxes: list[Box]
    arrows: list[Arrow]
    width: int
    height: int
    cut: bool
    """True if some rows were left out, because there are too many."""

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The styles of the arrows, each with its meaning."""
        used = {arrow.style for arrow in self.arrows}
        return [(style, text) for style, text in STYLES.items() if style in used]


@dataclass(slots=True)
class _Edges:
    """The arrows from one name to another: labels and sentences, by the style of the arrow."""

    found: dict[tuple[str, str, str], dict[str, None]] = field(default_factory=dict)
    labels: dict[tuple[str, str, str], dict[str, None]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    cut: bool = False

    def add(self, origin: str, end: str, style: str, sentence: str, label: str = "") -> None:
        new = {name for name in (origin, end) if name not in self.names}
        if len(self.names) + len(new) > MOST:
            self.cut = True
            return
        self.names |= dict.fromkeys((origin, end))
        self.found.setdefault((origin, end, style), {})[sentence] = None
        if label:
            self.labels.setdefault((origin, end, style), {})[label] = None


def picture(answer: AnswerView, keys: Sequence[str]) -> Picture | None:
    """The picture of the first set that holds or, of a denial, of what is held, denied and missing; None if there is nothing to draw.

    Missing is what the first way to an allow adds. `keys`: of the entities from the root to the resource.
    """
    edges, outer = _Edges(), dict[str, None]()
    user = f"user:{answer.explanation.request.user}"
    ways = [section for section in answer.reasons if section.way]
    for part in dict.fromkeys(part for section in ways[:1] or answer.reasons for part in section.parts):
        for chains, style in ((part.because, "held"), (part.denied_by, "denied")):
            for chain in chains:
                for step in reversed(chain):
                    if step.ends is not None:
                        edges.add(*step.ends, style, step.text, _label(part, step.kind))
                ends = chain[0].ends if chain else None
                if ends is not None and ends[1] in edges.names:
                    outer[ends[1]] = None
    for way in answer.ways[:1]:
        for change in way.proposal.changes:
            outer |= dict.fromkeys(_add_missing(edges, change, user, keys[-1], new_role=way.proposal.new_role))
    around = [key for key in keys if key in outer]
    if around and around[-1] != keys[-1]:
        around.append(keys[-1])
    for above, below in pairwise(around):
        edges.add(above, below, "within", f"{below} lies in {above}")
    entities = [*(key for key in keys if key in edges.names), *(key for key in outer if key not in keys)]
    return _laid_out(edges, user, [key for key in entities if key != user]) if edges.found else None


def _add_missing(edges: _Edges, change: Change, user: str, key: str, *, new_role: bool) -> Iterator[str]:
    """Draw a change that would be needed; yields the entity to which it leads. `key`: of the resource."""
    sentence = change_text(change, user.removeprefix("user:"))
    if isinstance(change, RemoveDenial):
        return  # the denial is drawn
    if isinstance(change, Give):
        kind = "role" if new_role and change.privilege else change.to
        holder, end = user, "service" if change.entity is None else str(change.entity)
        if kind != "user":
            holder = f"{kind}:a new {kind}"
            edges.add(user, holder, "missing", sentence)
        edges.add(holder, end, "missing", sentence, change.privilege or change.table.removesuffix("s"))
        yield end
        return
    holder = f"role:{change.role}" if isinstance(change, Assign) else f"group:{change.group}"
    edges.add(user, holder, "missing", sentence)
    edges.add(holder, key, "missing", f"{holder} has what is missing")
    yield key


def _label(part: Part, kind: str) -> str:
    """The label of an arrow to an entity; empty between principals."""
    match kind:
        case "owner" | "member":
            return kind
        case "grant" | "deny" | "role":
            return part.atom.partition(" (")[0]
        case _:
            return ""


def _laid_out(edges: _Edges, user: str, entities: Sequence[str]) -> Picture:
    rank = _ranks(edges, user, entities)
    columns: list[list[str]] = [[] for _ in range(max(rank.values()) + 1)]
    for name in (*(name for name in rank if name not in entities), *entities):
        if name in rank:
            columns[rank[name]].append(name)
    bends: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for edge in edges.found:  # an arrow over several columns has a place of its own in those between
        for number in range(rank[edge[0]] + 1, rank[edge[1]]):
            bends.setdefault(edge, []).append((number, len(columns[number])))
            columns[number].append("")
    boxes: dict[str, Box] = {}
    for number, names in enumerate(columns):
        for row, name in enumerate(names):
            if name:
                kind, text = _kind(name)
                x, y = _place(number, row)
                boxes[name] = Box(name=name, kind=kind, text=_short(text, LETTERS), x=x, y=y)
    return Picture(
        boxes=list(boxes.values()),
        arrows=list(_arrows(edges, boxes, bends)),
        width=8 + len(columns) * (WIDTH + GAP) - GAP,
        height=8 + max(map(len, columns)) * LINE,
        cut=edges.cut,
    )


def _place(column: int, row: int) -> tuple[int, int]:
    return 4 + column * (WIDTH + GAP), 8 + row * LINE


def _ranks(edges: _Edges, user: str, entities: Collection[str]) -> dict[str, int]:
    """The columns of names: principals by distance from the user, along the longest way, groups in each other may form cycles; then entities."""
    rank: dict[str, int] = {name: 0 for name in edges.names if name not in entities}
    for _ in range(len(rank)):
        before = dict(rank)
        for origin, end, _ in edges.found:
            if end not in (user, origin) and {origin, end} <= rank.keys():
                rank[end] = min(max(rank[end], rank[origin] + 1), len(rank) - 1)
        if rank == before:
            break
    used = {number: position for position, number in enumerate(sorted(set(rank.values())))}
    last = dict.fromkeys((name for name in entities if name in edges.names), len(used))
    return {name: used[number] for name, number in rank.items()} | last


def _arrows(
    edges: _Edges, boxes: Mapping[str, Box], bends: Mapping[tuple[str, str, str], list[tuple[int, int]]]
) -> Iterator[Arrow]:
    for edge, sentences in edges.found.items():
        a, b, style = boxes[edge[0]], boxes[edge[1]], edge[2]
        x, y, end_x, end_y = a.x + WIDTH, a.y + HEIGHT // 2, b.x - 7, b.y + HEIGHT // 2
        if b.x <= a.x:  # to a box above or below
            x, end_x = a.x + WIDTH // 2, b.x + WIDTH // 2
            y, end_y = (a.y + HEIGHT, b.y - 7) if a.y < b.y else (a.y, b.y + HEIGHT + 7)
            path = f"M{x} {y}L{end_x} {end_y}"
        else:
            path = f"M{x} {y}"
            for column, row in bends.get(edge, ()):
                left, top = _place(column, row)
                path += _curve(x, y, left, top + HEIGHT // 2) + f"H{left + WIDTH}"
                x, y = left + WIDTH, top + HEIGHT // 2
            path += _curve(x, y, end_x, end_y)
        first, *more = edges.labels.get(edge, ("",))
        label = ("not " if style == "denied" and first else "") + first + (f" +{len(more)}" if more else "")
        alike = [other for other in edges.labels if other[1] == edge[1]]
        yield Arrow(
            path=path,
            style=style,
            label=_short(label, LABEL),
            title="; ".join(sentences),
            x=b.x - GAP // 2 if b.x > a.x else end_x,
            y=end_y - 7 + 22 * (alike.index(edge) if label else 0),  # a second label stands below the first
        )


def _curve(x: int, y: int, end_x: int, end_y: int) -> str:
    middle = (x + end_x) // 2
    return f"C{middle} {y} {middle} {end_y} {end_x} {end_y}"


def _kind(name: str) -> tuple[str, str]:
    """The kind of a name, in a word, and the rest of the name."""
    kind, colon, rest = name.partition(":")
    return (kind, rest or kind) if colon else (name, name)


def _short(text: str, most: int) -> str:
    """A text that fits: of a longer one the end, where paths differ."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
