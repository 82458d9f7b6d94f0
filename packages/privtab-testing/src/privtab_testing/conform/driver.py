"""Drivers between a plan and a running system; and the file from which a system reads its state, replaced during a test."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from privtab.base import PrivtabError, Request, UsageError, write_file
from privtab.bundle import state_bundle
from privtab.ir import Program, Rule
from privtab.state import State
from privtab_testing.conform import SystemAnswer, World
from privtab_testing.conform.steps import Abilities


class DriverError(PrivtabError):
    """A system that is asked whether it obeys its table, or its driver, failed: no further questions can be asked."""


BUNDLE = ".tar.gz"
WAIT_SECONDS = 30.0
"""The longest wait until a system shows a new state."""


class StateFile:
    """A bundle of a state if the name of the file ends like one, and JSON otherwise."""

    def __init__(self, path: Path, program: Program) -> None:
        self._path = path
        self._program = program
        self._before: bytes | None = None
        self._wrote = False

    def replace(self, state: State, shown: Callable[[], bool] | None) -> None:
        """Write a state, and wait until `shown`: whether the system has it. Raises DriverError."""
        try:
            self._before = self._path.read_bytes() if self._path.exists() else None
        except OSError as error:
            raise DriverError(f"{self._path}: {error.strerror}") from error
        is_bundle = self._path.name.endswith(BUNDLE)
        write_file(self._path, state_bundle(self._program, state) if is_bundle else state_bytes(state), in_place=True)
        self._wrote = True
        deadline = time.monotonic() + WAIT_SECONDS
        while shown is not None and not shown():
            if time.monotonic() > deadline:
                raise DriverError(f"the system does not show the state of {self._path} after {WAIT_SECONDS:g} s")
            time.sleep(0.2)

    def restore(self) -> tuple[str, ...]:
        """Put the former content back, if it was replaced; returns the problems."""
        if not self._wrote:
            return ()
        try:
            if self._before is None:
                self._path.unlink(missing_ok=True)
            else:
                write_file(self._path, self._before, in_place=True)
        except OSError as error:
            return (f"{self._path}: {error.strerror}",)
        self._wrote = False
        return ()


def state_bytes(state: State) -> bytes:
    """A state as a JSON file."""
    return (json.dumps(state.to_tables(), indent=1, ensure_ascii=False) + "\n").encode()


@runtime_checkable
class PlainDriver(Protocol):
    """The least interface of a user's class. An exception ends the test; requests that cannot be asked are UNSUPPORTED.

    A method `lacks(world)` may say what the class cannot make, before anything is made.
    """

    def prepare(self, world: World) -> None:
        """Make users, entities and rows."""

    def ask(self, request: Request) -> SystemAnswer | str:
        """The system's reaction to a request."""

    def clean(self) -> Sequence[str] | None:
        """Remove everything that `prepare` created, also after a failure; returns the remains."""


class Journal(Protocol):
    """What was made so far, each thing with what was kept of it: so that preparing can be resumed."""

    @property
    def made(self) -> Mapping[str, Mapping[str, str]]:
        """What is made, and not removed."""

    def add_made(self, what: str, kept: Mapping[str, str]) -> None:
        """Note that something is made."""


class Driver:
    """A driver with the defaults of all optional methods; subclasses override them."""

    batch = 1
    """The number of requests that `ask_many` takes at once."""
    keeps_state = False
    """True if the system has its state from `--write-state`: then all rows are planned, and callers are named for the plan."""

    file: StateFile | None = None
    """The file from which the system reads its state, if the driver writes the file."""
    probe: Callable[[], bool] | None = None
    """Tells whether the system shows the state of the file already."""

    gives_attributes = True
    """True if the system takes attributes from the prepared state, and from requests."""
    through_roles = True
    """True if callers may hold their privileges through roles."""
    through_groups = True
    """True if callers may hold their privileges through groups."""
    odd_names = True
    """True if names may differ in case alone, and if several kinds or types may share a name."""
    resumes = False
    """True if `prepare` leaves out what `journal` has, and notes there what it makes."""
    journal: Journal | None = None

    @property
    def abilities(self) -> Abilities:
        """The abilities of the driver, for planning."""
        return Abilities(
            groups=self.through_groups,
            roles=self.through_roles,
            odd_names=self.odd_names,
            makes=self.makes,
            there=self.there,
        )

    @property
    def there(self) -> frozenset[str]:
        """The types whose entities are there before, and not made."""
        return frozenset()

    def makes(self, world: World) -> bool:
        """Return whether the driver can make a world."""
        return not self.lacks(world)

    def lacks(self, world: World, requests: Iterable[Request] = ()) -> Sequence[str]:
        """What the driver cannot make of a world, and cannot ask of some requests: a test that needs it is refused before it begins."""
        del world, requests
        return ()

    def asks(self, rule: Rule) -> bool:
        """Return whether an operation can be asked; nothing is created for other operations."""
        del rule
        return True

    def changes(self, rule: Rule) -> bool:
        """Return whether asking an operation may change the system: such questions come last, about entities of their own."""
        del rule
        return False

    def restores(self, rule: Rule) -> bool:
        """Return whether what asking an operation changes is undone at once: such questions are asked one at a time."""
        del rule
        return False

    def calls(self, world: World) -> int:
        """The number of calls that `prepare` makes."""
        return len(world.users) + len(world.groups) + len(world.roles) + len(world.entities) + world.rows

    def state(self, world: World) -> State:
        """The rows that the system must have for a world."""
        return world.state

    def prepare(self, world: World) -> None:
        """Make the users, entities and rows of a world. Raises DriverError."""
        raise NotImplementedError

    def ask(self, request: Request) -> SystemAnswer:
        """The system's reaction to a request. Raises DriverError if the system does not answer."""
        raise NotImplementedError

    def ask_many(self, requests: Sequence[Request]) -> list[SystemAnswer]:
        """As `ask`, by position."""
        return [self.ask(request) for request in requests]

    def clean(self) -> tuple[str, ...]:
        """Remove everything that `prepare` created, also after a failure; returns the remains."""
        raise NotImplementedError

    def clean_world(self, world: World) -> tuple[str, ...]:
        """Remove everything that an earlier test of the same plan may have left; returns the remains."""
        del world
        return self.clean()

    def reproduce(self, request: Request) -> str:
        """A command that asks the same, to be pasted; empty if there is none."""
        del request
        return ""

    def message(self, request: Request) -> str:
        """The system's message when the answer was BROKEN; empty if the message is not known."""
        del request
        return ""


class _Wrapped(Driver):
    """A class of a user that has only the three methods of PlainDriver."""

    def __init__(self, plain: PlainDriver) -> None:
        self._plain = plain

    def lacks(self, world: World, requests: Iterable[Request] = ()) -> Sequence[str]:
        del requests
        told = getattr(self._plain, "lacks", None)
        return () if told is None else tuple(told(world))

    def prepare(self, world: World) -> None:
        self._plain.prepare(world)

    def ask(self, request: Request) -> SystemAnswer:
        answer = self._plain.ask(request)
        try:
            return SystemAnswer(answer)
        except ValueError:
            raise DriverError(
                f"the driver answered {answer!r:.80}, which is none of {', '.join(SystemAnswer)}"
            ) from None

    def clean(self) -> tuple[str, ...]:
        return tuple(self._plain.clean() or ())


def load_class(name: str, url: str | None, options: Mapping[str, str]) -> Driver:
    """The driver `module:Class`, constructed with `url` and options by name. Raises UsageError."""
    module_name, _, class_name = name.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        driver_class: Any = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"no driver `{name}`: {error}") from error
    try:
        driver = driver_class(**({} if url is None else {"url": url}), **options)
    except TypeError as error:
        raise UsageError(f"`{name}` cannot be made: {error}") from error
    if isinstance(driver, Driver):
        return driver
    if not isinstance(driver, PlainDriver):
        raise UsageError(f"`{name}` is no driver: it needs the methods `prepare`, `ask` and `clean`")
    return _Wrapped(driver)
