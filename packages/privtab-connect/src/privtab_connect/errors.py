"""The exceptions of systems that rights are read from and pushed to."""

from __future__ import annotations

from privtab.base import PrivtabError


class PushError(PrivtabError):
    """A system that rights are pushed to could not be read or changed."""


class TemplateError(PrivtabError):
    """A template cannot be filled in: a value is missing, or is no text."""
