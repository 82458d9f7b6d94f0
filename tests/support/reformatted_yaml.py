"""Reformat YAML at random without changing its values: indentation, brackets, quotes, blank lines and comments."""

from __future__ import annotations

import random

from privtab.base.source import SourceFile
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode, compose_yaml

WORDS = ("why", "what", "see 12-14", "a: b", "- c", "'d", '"e', "{f", "# g", "ü", "")


def reformatted(text: str, seed: int) -> str:
    """The text with the same values in a random layout, which depends only on the seed."""
    found: list[object] = []
    root = compose_yaml(SourceFile.of("text.yaml", text), found)  # type: ignore[arg-type]
    assert root is not None
    assert not found
    writer = _Writer(random.Random(seed))
    lines = ["---"] if writer.sometimes(0.1) else []
    lines += writer.between(0)
    lines += writer.block(root, 0) if not isinstance(root, ScalarNode) else [writer.scalar(root, flow=False)]
    lines += writer.between(0)
    end = writer.random.choice(["\n", "\n", "\r\n"])
    return end.join(lines) + writer.random.choice(["", end, end * 3])


class _Writer:
    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.text = False
        """Whether the last thing written is a block scalar, which would include a comment that is indented further."""

    def sometimes(self, share: float) -> bool:
        return self.random.random() < share

    def comment(self) -> str:
        return f"#{self.random.choice(['', ' '])}{self.random.choice(WORDS)}".rstrip()

    def trailing_comment(self) -> str:
        return " " * self.random.randint(1, 4) + self.comment() if self.sometimes(0.12) else ""

    def between(self, indent: int) -> list[str]:
        """Random blank lines and comments."""
        lines: list[str] = []
        while self.sometimes(0.15):
            lines.append(
                ""
                if self.sometimes(0.4)
                else " " * (indent + self.random.choice([0] if self.text else [0, 0, 0, 1, 3])) + self.comment()
            )
        return lines

    def block(self, node: YamlNode, indent: int) -> list[str]:
        """A collection in block style."""
        lines: list[str] = []
        step = self.random.choice([2, 2, 3, 4])
        if isinstance(node, MappingNode):
            for key, value in node.entries:
                lines += self.between(indent)
                head = " " * indent + self.key(key) + ":"
                less = isinstance(value, SequenceNode) and self.sometimes(0.3)
                lines += self.after(head, value, indent if less else indent + step, indent + step)
        elif isinstance(node, SequenceNode):
            for value in node.items:
                lines += self.between(indent)
                gap = self.random.randint(1, 3)
                inner = self.block(value, indent + 1 + gap) if self.is_block(value) else []
                if inner and inner[0][indent + 1 + gap :][:1].strip(" #") and self.sometimes(0.8):
                    lines += [" " * indent + "-" + " " * gap + inner[0].lstrip(" "), *inner[1:]]
                elif inner:
                    lines += [" " * indent + "-" + self.trailing_comment(), *inner]
                else:
                    lines += self.after(" " * indent + "-", value, indent + step, indent + step, block=False)
        return lines

    def is_block(self, node: YamlNode) -> bool:
        if isinstance(node, ScalarNode):
            return False
        return bool(node.entries if isinstance(node, MappingNode) else node.items) and self.sometimes(0.6)

    def after(self, head: str, value: YamlNode, indent: int, deeper: int, *, block: bool = True) -> list[str]:
        """The lines of a key or dash with its value."""
        if block and self.is_block(value):
            return [head + self.trailing_comment(), *self.block(value, indent)]
        if (
            isinstance(value, ScalarNode)
            and isinstance(value.value, str)
            and self.foldable(value.text)
            and self.sometimes(0.2)
        ):
            self.text = True
            mark = self.random.choice(["|-", ">-"])
            lines = [f"{head} {mark}{self.trailing_comment()}"]
            words = value.text.split(" ")
            position = self.random.randint(1, len(words)) if mark == ">-" else len(words)
            lines += [" " * deeper + " ".join(part) for part in (words[:position], words[position:]) if part]
            return lines
        if not isinstance(value, ScalarNode) and self.sometimes(0.3) and (value.end - value.start > 2):
            return self.spread(head, value, deeper)
        self.text = False
        shown = self.flow(value)
        return [" ".join(filter(None, (head, shown))) + self.trailing_comment()]

    def spread(self, head: str, value: MappingNode | SequenceNode, indent: int) -> list[str]:
        """A collection in flow style over several lines, with comments inside."""
        self.text = False
        mapping = isinstance(value, MappingNode)
        parts = (
            [self.pair(key, item) for key, item in value.entries]
            if isinstance(value, MappingNode)
            else [self.flow(item) for item in value.items]
        )
        lines = [f"{head} {'{' if mapping else '['}{self.trailing_comment()}"]
        for number, part in enumerate(parts):
            comma = "," if number + 1 < len(parts) or self.sometimes(0.2) else ""
            lines += [" " * indent + part + comma + self.trailing_comment()]
            lines += self.between(indent)
        return [*lines, " " * indent + ("}" if mapping else "]") + self.trailing_comment()]

    def flow(self, node: YamlNode) -> str:
        match node:
            case ScalarNode():
                return self.scalar(node, flow=True)
            case MappingNode(entries=entries):
                return "{" + ", ".join(self.pair(key, value) for key, value in entries) + "}"
            case SequenceNode(items=items):
                return "[" + self.random.choice([", ", ",", " , "]).join(map(self.flow, items)) + "]"

    def pair(self, key: ScalarNode, value: YamlNode) -> str:
        return f"{self.key(key, flow=True)}: {self.flow(value)}".rstrip()

    def key(self, key: ScalarNode, *, flow: bool = False) -> str:
        return self.scalar(key, flow=flow)

    def scalar(self, scalar: ScalarNode, *, flow: bool) -> str:
        if not isinstance(scalar.value, str):
            return scalar.text or self.random.choice(["", "", "~", "null"] if not flow else [""])
        text = scalar.text
        simple = text.isprintable() and "'" not in text
        if text.replace("_", "").isalnum() and not scalar.style and self.sometimes(0.7):
            return text
        if simple and self.sometimes(0.5):
            return f"'{text}'"
        if not simple or flow or scalar.style or self.sometimes(0.3):
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
            return f'"{escaped}"'
        return f"'{text}'" if ": " in text or " #" in text or text[:1] in '[]{},&*!|>%@`"#-?:' else text

    def foldable(self, text: str) -> bool:
        return bool(text) and text.isprintable() and "  " not in text and text == text.strip()
