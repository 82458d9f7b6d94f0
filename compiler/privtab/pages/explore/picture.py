"""Why a decision is what it is, as a picture: from the user through groups and roles to rights on entities, and to the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from privtab.analysis.explain import Part, RequestExplanation

WIDTH, HEIGHT = 176, 40
"""Of a box, in pixels."""
GAP, LINE = 108, 58
"""Between columns of boxes, and from one box to the one below."""
LETTERS, LABEL = 22, 15
"""How many letters fit a box, and beside an arrow."""
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
    """Whether some rows were left out, because there are too many."""


@dataclass(slots=True)
class _Edges:
    """What leads from one name to another: labels and sentences, by the style of the arrow."""

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


def picture(explanation: RequestExplanation) -> Picture | None:
    """The picture of the first set that holds or, of a denial, of what is held and what is denied; None if no row matters."""
    edges, resource = _Edges(), str(explanation.request.resource)
    for part in _parts(explanation):
        for chains, style in ((part.because, "held"), (part.denied_by, "denied")):
            for chain in chains:
                last = ""
                for step in reversed(chain):
                    if step.ends is not None:
                        right = step.kind in ("grant", "deny", "role", "owner", "member")
                        label = (part.atom.partition(" (")[0] if step.kind != "owner" else "owner") if right else ""
                        edges.add(*step.ends, style, step.text, label)
                        last = step.ends[1]
                if last in edges.names and last != resource and _within(resource, last):
                    edges.add(last, resource, "within", f"{resource} lies in {last}")
    return _laid_out(edges, f"user:{explanation.request.user}") if edges.found else None


def _parts(explanation: RequestExplanation) -> Iterable[Part]:
    holding = next((parts for parts in explanation.sets if all(part.holds for part in parts)), None)
    if explanation.decision.allowed and holding is not None:
        return holding
    return dict.fromkeys(part for parts in explanation.sets for part in parts if part.holds or part.denied)


def _within(key: str, outer: str) -> bool:
    """Whether the path of an entity begins with that of another one."""
    path, above = key.partition(":")[2], outer.partition(":")[2]
    return ":" in outer and (not above or path == above or path.startswith(f"{above}/"))


def _laid_out(edges: _Edges, user: str) -> Picture:
    columns = _columns(edges, user)
    boxes: dict[str, Box] = {}
    for column, names in enumerate(columns):
        for row, name in enumerate(names):
            kind, text = _kind(name)
            x, y = 4 + column * (WIDTH + GAP), 8 + row * LINE
            boxes[name] = Box(name=name, kind=kind, text=_short(text, LETTERS), x=x, y=y)
    arrows = list(_arrows(edges, boxes))
    return Picture(
        boxes=list(boxes.values()),
        arrows=arrows,
        width=8 + len(columns) * (WIDTH + GAP) - GAP,
        height=8 + max(map(len, columns)) * LINE,
        cut=edges.cut,
    )


def _columns(edges: _Edges, user: str) -> list[list[str]]:
    """The names by how far they are from the user, along the longest way; rows of groups in each other may form cycles."""
    rank: dict[str, int] = dict.fromkeys(edges.names, 0)
    for _ in range(len(rank)):
        before = dict(rank)
        for origin, end, _ in edges.found:
            if end not in (user, origin):
                rank[end] = min(max(rank[end], rank[origin] + 1), len(rank) - 1)
        if rank == before:
            break
    columns: Mapping[int, list[str]] = {number: [] for number in sorted(set(rank.values()))}
    for name, number in rank.items():
        columns[number].append(name)
    return list(columns.values())


def _arrows(edges: _Edges, boxes: Mapping[str, Box]) -> Iterator[Arrow]:
    for (origin, end, style), sentences in edges.found.items():
        a, b = boxes[origin], boxes[end]
        x1, y1, x2, y2 = a.x + WIDTH, a.y + HEIGHT // 2, b.x, b.y + HEIGHT // 2
        if b.x <= a.x:  # to a box above or below, or before
            x1, x2 = a.x + WIDTH // 2, b.x + WIDTH // 2
            y1, y2 = (a.y + HEIGHT, b.y) if a.y < b.y else (a.y, b.y + HEIGHT)
            path = f"M{x1} {y1}L{x2} {y2}"
        else:
            middle = x2 - GAP // 2
            path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 7} {y2}"
        labels = list(edges.labels.get((origin, end, style), {}))
        label = f"{labels[0]} +{len(labels) - 1}" if len(labels) > 1 else labels[0] if labels else ""
        label = f"not {label}" if style == "denied" and label else label
        yield Arrow(
            path=path,
            style=style,
            label=_short(label, LABEL),
            title="; ".join(sentences),
            x=x2 - GAP // 2,
            y=y2 - 7,
        )


def _kind(name: str) -> tuple[str, str]:
    """What a name is the name of, in a word, and the rest of it."""
    kind, colon, rest = name.partition(":")
    return (kind, rest or kind) if colon else (name, name)


def _short(text: str, most: int) -> str:
    """A text that fits: of a longer one the end, where paths differ."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
