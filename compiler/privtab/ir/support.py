"""The features of policies that tools do not support: declared here, and refused by `Tool.check` alone.

A test runs every tool on a policy with each feature: what is declared is refused, and everything else works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from privtab.base.errors import UnsupportedError
from privtab.ir.formula import compares_given, uses_below
from privtab.ir.nodes import Program


class Feature(Enum):
    """A feature of the language that some tools do not support.

    Example:
        below = Feature.BELOW.used_by(program)
    """

    NESTED = "a type that nests"
    BELOW = "`or below`"
    ATTRIBUTES = "attributes"
    GIVEN = "comparisons of attributes that requests give"
    FLAT = "flat ids"
    ACTIVE_WITH_HIERARCHY = "active roles and roles that hold roles"
    CREATOR_BY_ROLE = "active roles as owners of what they create"

    def used_by(self, program: Program) -> bool:
        """Return whether a program has the feature."""
        return _USES[self](program)


class Tool(Enum):
    """A tool that some policies may be too much for; tests ask each about every feature.

    Example:
        Tool.SHARDS.check(program)
    """

    CONFORM = "conform"
    COVERAGE = "coverage"
    DIFF = "diff"
    MUTATION = "mutation scores"
    NEEDS = "needs"
    PATHS = "paths"
    SHARDS = "shards"
    SPARK = "spark"
    SPARK_BUILD = "builds of states in spark"
    STATE_DIFF = "state diff"
    TURNS = "changes that turn a denial"
    WHAT_CAN = "what-can"
    WHO_CAN = "who-can"
    WHO_CAN_PRINCIPALS = "principals of who-can"

    def check(self, program: Program) -> None:
        """Raise UnsupportedError if a program uses a feature that the tool does not support."""
        for feature, tools in UNSUPPORTED.items():
            if self in tools and feature.used_by(program):
                raise refusal(feature, self)


UNSUPPORTED: Mapping[Feature, Mapping[Tool, str]] = {
    # The texts are the subjects of the messages.
    Feature.NESTED: {},
    Feature.BELOW: {},
    Feature.ATTRIBUTES: {},
    Feature.GIVEN: {},
    Feature.FLAT: {
        Tool.CONFORM: "`conform`",
        Tool.SHARDS: "a sharded state",
        Tool.SPARK_BUILD: "the build of a state in Spark",
    },
    Feature.ACTIVE_WITH_HIERARCHY: {},
    Feature.CREATOR_BY_ROLE: {Tool.CONFORM: "`conform`"},
}

_USES: Mapping[Feature, Callable[[Program], bool]] = {
    Feature.NESTED: lambda program: program.nests,
    Feature.BELOW: uses_below,
    Feature.ATTRIBUTES: lambda program: bool(program.attributes),
    Feature.GIVEN: compares_given,
    Feature.FLAT: lambda program: bool(program.flat),
    Feature.ACTIVE_WITH_HIERARCHY: lambda program: (
        program.semantics.active_roles == "request" and "roles" in program.semantics.hierarchy
    ),
    Feature.CREATOR_BY_ROLE: lambda program: any(rule.needs_active_role for rule in program.rules.values()),
}


def refusal(feature: Feature, tool: Tool) -> UnsupportedError:
    """The error of a tool for a policy with a feature that it does not support."""
    return UnsupportedError(f"{UNSUPPORTED[feature][tool]} does not support policies with {feature.value}")
