"""The exceptions of registries, stores and fleets.

PrivtabError
├── FleetError          sidecars, or the server that they report to, could not be reached
├── RegistryError       a registry of bundles could not be read or written
│   ├── RegistryConflict  another change came first (exit code 1)
│   └── BundleRefused     a bundle must not be stored: broken, of no known kind, not signed (exit code 1)
└── StoreError          a store of grants could not be read or written
    └── StoreConflict     another change came first, or the store does not hold a row to remove (exit code 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from privtab.base import ExitCode, PrivtabError


class FleetError(PrivtabError):
    """Sidecars, or the server that they report to, could not be reached or rejected a message."""


class RegistryError(PrivtabError):
    """A registry of bundles could not be read or written."""


class RegistryConflict(RegistryError):
    """Another change came first: another release of the channel, or other bytes with the same revision."""

    exit_code = ExitCode.FINDINGS


class BundleRefused(RegistryError):
    """A bundle must not be stored: it cannot be read, is of no known kind, does not match its revision, or is not signed."""

    exit_code = ExitCode.FINDINGS


class StoreError(PrivtabError):
    """A store of grants could not be read or written."""


class StoreConflict(StoreError):
    """Another change came first, or the store does not hold a row to remove: nothing was written."""

    exit_code = ExitCode.FINDINGS


@contextmanager
def expected_form(where: str, error: type[Exception]) -> Iterator[None]:
    """Raise `error` if an answer has another form than the code that reads the answer expects."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as problem:
        what = f"`{problem.args[0]}` is missing" if isinstance(problem, KeyError) else str(problem)
        raise error(f"{where} answered in another form than expected: {what}") from problem
