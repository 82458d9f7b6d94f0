"""The language of policies: reading, findings, formatting, lint and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.language.fmt import format_source
    from privtab.language.report import CaseResult, SuiteResult, SuppressedFinding, junit, sarif
    from privtab.language.syntax import read_policy
    from privtab.language.syntax.cells import cell_names, parse_constants
    from privtab.language.syntax.keys import policy_schema
    from privtab.language.syntax.node_reader import DocumentProblem, DocumentReader
    from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode, compose_yaml
else:
    __getattr__, __dir__, __all__ = face(__name__)
