"""Draws the reasons for a decision: from the user through groups and roles to rights on entities, and to the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from privtab_analysis.explanation import Part, RequestExplanation

WIDTH, HEIGHT = 176, 40
"""The size of a box, in pixels."""
GAP, LINE = 108, 58
"""Between columns of boxes, and from one box to the one below."""
LETTERS, LABEL = 22, 15
"""The most letters that fit a box, and beside an arrow."""
MOST = 40
"""Maximum boxes of a picture."""


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
    """A row that leads from one to the other, or containment. `style`: `held`, `denied` or `within`."""

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


def picture(explanation: RequestExplanation, keys: Sequence[str]) -> Picture | None:
    """The picture of the first set that holds or, of a denial, of the held and the denied atoms; None if no row matters.

    `keys`: of the entities from the root to the resource.
    """
    edges = _Edges()
    outer: dict[str, None] = {}
    for part in decisive_parts(explanation):
        for chains, style in ((part.because, "held"), (part.denied_by, "denied")):
            for chain in chains:
                for step in reversed(chain):
                    if step.ends is not None:
                        edges.add(*step.ends, style, step.text, _label(part, step.kind))
                ends = chain[0].ends if chain else None
                if ends is not None and ends[1] in edges.names:
                    outer[ends[1]] = None
    around = [key for key in keys if key in outer]
    if around and around[-1] != keys[-1]:
        around.append(keys[-1])
    for above, below in pairwise(around):
        edges.add(above, below, "within", f"{below} lies in {above}")
    return _laid_out(edges, f"user:{explanation.request.user}") if edges.found else None


def _label(part: Part, kind: str) -> str:
    """The label of an arrow to an entity; empty between principals."""
    match kind:
        case "owner" | "member":
            return kind
        case "grant" | "deny" | "role":
            return part.atom.partition(" (")[0]
        case _:
            return ""


def decisive_parts(explanation: RequestExplanation) -> Iterable[Part]:
    """The first set that holds or, of a denial, the held and the denied atoms."""
    holding = next((parts for parts in explanation.sets if all(part.holds for part in parts)), None)
    if explanation.decision.allowed and holding is not None:
        return holding
    return dict.fromkeys(part for parts in explanation.sets for part in parts if part.holds or part.denied)


def _laid_out(edges: _Edges, user: str) -> Picture:
    rank = _ranks(edges, user)
    columns: list[list[str]] = [[] for _ in range(max(rank.values()) + 1)]
    for name, number in rank.items():
        columns[number].append(name)
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


def _ranks(edges: _Edges, user: str) -> dict[str, int]:
    """The distances of names from the user, along the longest way; groups in each other may form cycles."""
    rank: dict[str, int] = dict.fromkeys(edges.names, 0)
    for _ in range(len(rank)):
        before = dict(rank)
        for origin, end, _ in edges.found:
            if end not in (user, origin):
                rank[end] = min(max(rank[end], rank[origin] + 1), len(rank) - 1)
        if rank == before:
            break
    used = {number: position for position, number in enumerate(sorted(set(rank.values())))}
    return {name: used[number] for name, number in rank.items()}


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
        labels = list(edges.labels.get(edge, {}))
        label = f"{labels[0]} +{len(labels) - 1}" if len(labels) > 1 else labels[0] if labels else ""
        label = f"not {label}" if style == "denied" and label else label
        yield Arrow(
            path=path,
            style=style,
            label=_short(label, LABEL),
            title="; ".join(sentences),
            x=b.x - GAP // 2 if b.x > a.x else end_x,
            y=end_y - 7,
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
