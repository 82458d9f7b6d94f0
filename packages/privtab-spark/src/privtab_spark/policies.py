"""Open a policy given in any supported form."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from privtab.base import PolicyError, UsageError, Vocabulary
from privtab.ir import Feature, Program, program_from_json

PolicyLike: TypeAlias = "str | os.PathLike[str] | Program | Mapping[str, Any] | OpenPolicy"
"""A policy by name (`cdap/final`) or path, a program, a policy bundle (`.tar.gz` or a folder), or a program's JSON."""

_ARCHIVES = (".tar.gz", ".tgz")
_BEYOND_ARRAYS = (
    Feature.NESTED,
    Feature.FLAT,
    Feature.BELOW,
    Feature.ATTRIBUTES,
    Feature.ACTIVE_WITH_HIERARCHY,
)
"""Features for which a state's arrays (`engines/arrays.py`) are not enough for decisions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenPolicy:
    """A policy in the form that the plans of Spark need."""

    json: Mapping[str, Any]
    """The program's JSON, as in the policy bundle."""
    program: Program | None
    """None if only a bundle or JSON was given: enough to decide with a state bundle, but not to validate the rows of a state."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The names of the policy."""
        return Vocabulary.from_program(self.json)

    @property
    def everyone(self) -> tuple[str, ...]:
        """The name of the group of every user, if there is one."""
        semantics = self.json["semantics"]
        return (semantics["everyone"],) if "everyone" in semantics else ()

    @cached_property
    def destructive(self) -> tuple[str, ...]:
        """The operations that are declared destructive, each as `table/drop`."""
        rules = ((f"{type_}/{name}", rule) for type_, rows in self.json["rules"].items() for name, rule in rows.items())
        return tuple(operation for operation, rule in rules if rule.get("destructive"))

    @cached_property
    def digest(self) -> str:
        """A short hash that identifies the program."""
        from privtab.bundle import json_bytes

        return hashlib.sha256(json_bytes(self.json)).hexdigest()[:16]

    @cached_property
    def beyond_arrays(self) -> tuple[Feature, ...]:
        """The features for which executors need the index of a state instead of its arrays."""
        return tuple(feature for feature in _BEYOND_ARRAYS if feature.used_by(self.as_program))

    @cached_property
    def as_program(self) -> Program:
        """The program, read from its JSON if there is no other. Raises PolicyError for JSON that is no program."""
        if self.program is not None:
            return self.program
        try:
            return program_from_json(self.json, self.system)
        except ValueError as error:
            raise PolicyError(f"this is not the program of a policy bundle: {error}") from error

    @property
    def system(self) -> str:
        """The name of the system."""
        return self.vocabulary.system

    def checked(self, what: str) -> Program:
        """The program; raises UsageError if there is none. `what` names, for the message, the feature that needs the program."""
        if self.program is None:
            raise UsageError(
                f"{what} needs the source of the policy to be checked: give the policy by name or path, not as a bundle"
            )
        return self.program


def open_policy(policy: PolicyLike) -> OpenPolicy:
    """A policy by name or path, a program, a policy bundle, or a program's JSON; raises as `pipeline.load_program` does."""
    match policy:
        case OpenPolicy():
            return policy
        case Program():
            return _of_program(policy)
        case Mapping():
            return _of_json(policy)
        case str() | os.PathLike() if os.fspath(policy):
            location = os.fspath(policy)
        case _:
            raise UsageError(
                f"{policy!r} is not a policy: give a name such as `cdap/final`, a path, a bundle or a Program"
            )
    if location.endswith(_ARCHIVES) or (Path(location) / ".manifest").is_file():
        return _of_json(_bundled(location))
    from privtab.pipeline import load_program

    return _of_program(load_program(location))


def _of_program(program: Program) -> OpenPolicy:
    from privtab.pipeline import policy_artifacts

    # The same JSON as in the bundle, so that both have the same digest.
    return OpenPolicy(json=policy_artifacts(program).program, program=program)


def _of_json(program: Mapping[str, Any]) -> OpenPolicy:
    try:
        Vocabulary.from_program(program)
    except (KeyError, TypeError, AttributeError) as error:
        raise PolicyError(f"this is not the program of a policy bundle: {error!r}") from error
    return OpenPolicy(json=program, program=None)


def _bundled(location: str) -> Mapping[str, Any]:
    from privtab.client import BundleLocation

    programs = {
        name: program
        for found in BundleLocation.of(Path(location)).read({}, dict)
        for name, program in found.content.programs.items()
    }
    if len(programs) != 1:
        raise UsageError(f"{location} holds {len(programs)} policies: name a bundle with one")
    return next(iter(programs.values()))
