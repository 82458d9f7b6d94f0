"""Help texts: reformat the docstrings of commands for terminals of any width."""

from __future__ import annotations

import inspect
import re

import typer

EXAMPLE = "\b"
"""Marks a paragraph whose lines are not rewrapped."""


def rewrap_help(app: typer.Typer) -> None:
    """Rewrap the paragraphs of all commands of an application; brackets are kept as text."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.help = rewrap(inspect.getdoc(command.callback) or "")


def rewrap(text: str) -> str:
    r"""A docstring with each paragraph on one line, except examples.

    >>> rewrap("Say\nwhat is in [x].\n\nExample:\n\n\b\n  privtab a\n  privtab b")
    'Say what is in \\[x].\n\nExample:\n\n[dim][/dim]  privtab a\n  privtab b'
    """
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    plain = re.sub(r"\[(?=[a-z#/@])", r"\\[", text)
    # Typer removes the common indentation: the empty tag at the margin prevents that.
    return f"[dim][/dim]{plain[len(EXAMPLE) :].strip(chr(10))}" if text.startswith(EXAMPLE) else " ".join(plain.split())
