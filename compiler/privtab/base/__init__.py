"""Names for every room: names, paths, requests, errors, moments, texts, files. Nothing here knows of policies."""

from __future__ import annotations

from privtab.base.lazy import TYPE_CHECKING

if TYPE_CHECKING:
    from privtab.base.arrow import array_truth
    from privtab.base.attributes import Attribute, GivenAttributes
    from privtab.base.caching import RecentlyUsed, no_collection, once
    from privtab.base.diagnostics import Diagnostic, FindingKind, Located, Severity, Span
    from privtab.base.effects import PRINCIPAL_TABLES, Change
    from privtab.base.errors import (
        BrokenBundle,
        DecisionError,
        DecisionUnavailable,
        ExitCode,
        FileError,
        HasWindows,
        InvalidRequest,
        PolicyError,
        PolicyInvalid,
        PrivtabError,
        SettingsInvalid,
        StateInvalid,
        Undecided,
        UnsupportedError,
        UsageError,
    )
    from privtab.base.files import STATE_HELP, check_secret, note_read, read_content, read_text, state_location
    from privtab.base.hints import did_you_mean, hint, listed_names, nearest
    from privtab.base.key_values import parse_key_values
    from privtab.base.lazy import face
    from privtab.base.moments import (
        WINDOW_COLUMNS,
        Window,
        WrongTime,
        moment_text,
        parse_moment,
    )
    from privtab.base.names import (
        ANY_PRIVILEGE,
        LEFT_OUT,
        PRINCIPAL_KINDS,
        bare_name,
        check_principal,
        encode_name,
        is_wildcard,
        last_name,
        quoted_privilege,
        unusable_character,
    )
    from privtab.base.paths import Locations, base_type, level_of
    from privtab.base.plugins import load_plugin, plugin_names
    from privtab.base.printable import count, no_formula, printable_json, printable_output, printable_text
    from privtab.base.records import dataclass
    from privtab.base.request import NOT_SET, AccessDenied, Decision, Entity, Request
    from privtab.base.resources import Documents, how_to_install, needing, text_templates
    from privtab.base.shard_names import sharded_revision
    from privtab.base.signatures import Trust
    from privtab.base.source import SourceFile
    from privtab.base.sql_text import FilterWord
    from privtab.base.staged import staged_file, write_file
    from privtab.base.strict_json import StrictDecoder, strict_loads
    from privtab.base.vocabulary import Vocabulary
    from privtab.base.worker import Worker
else:
    from privtab.base.lazy import face

    __getattr__, __dir__, __all__ = face(__name__)
