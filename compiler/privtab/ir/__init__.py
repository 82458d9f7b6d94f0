"""The intermediate representation, its canonical form, and exact comparison of conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.ir.algebra import Algebra, Rebuilder
    from privtab.ir.canonical import Leaf, Listing, canonical_form
    from privtab.ir.deserialise import program_from_json
    from privtab.ir.exact import ImplicationChecker
    from privtab.ir.facts import EVERYONE, Fact, FactSemantics
    from privtab.ir.formula import (
        RequestAlgebra,
        Truth,
        asked_condition,
        compared_terms,
        on_entity,
        reached_atoms,
        references,
        replace_atoms,
        resolve_can,
        walk_reached,
        with_targets,
    )
    from privtab.ir.names import atom_text, atom_words, condition_text, effect_texts, privilege_names, value_text
    from privtab.ir.nodes import (
        ALWAYS,
        NEVER,
        RESOURCE,
        Alias,
        And,
        Atom,
        Below,
        ByType,
        Can,
        Compare,
        Effect,
        EntityType,
        Formula,
        Has,
        HasBelow,
        Holds,
        Member,
        OnTarget,
        Or,
        Owner,
        OwnsBelow,
        Program,
        Rule,
        Self,
        ServiceAdmin,
        SqlFilter,
        Target,
        Term,
        When,
    )
    from privtab.ir.serialise import program_json, vocabulary
    from privtab.ir.shapes import rule_flags
    from privtab.ir.some_minimal_sets import minimal_listing
    from privtab.ir.support import Feature, Tool
    from privtab.ir.unroll import levels_that_matter, unrolled
else:
    __getattr__, __dir__, __all__ = face(__name__)
