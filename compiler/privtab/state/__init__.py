"""Who holds what: tables of rows that are read, validated and indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.state.attribute_rows import attribute_parts, attribute_texts
    from privtab.state.coded import CodedColumn, RawTable
    from privtab.state.findings import RowLocation, StateFinding
    from privtab.state.folders import TableFiles
    from privtab.state.holdings import Holdings
    from privtab.state.index import index_bytes, index_document
    from privtab.state.large import ColumnChecker
    from privtab.state.large_index import ColumnIndex
    from privtab.state.links import (
        GROUP_PREFIX,
        LINK_COLUMNS,
        ROLE_PREFIX,
        ScopeOverlap,
        as_written,
        derived_rows,
        with_derived_rows,
    )
    from privtab.state.load import conflicts, from_tables, load_raw_state, validate, validate_with_places
    from privtab.state.located import locations, lying_in
    from privtab.state.names import Places, RowProblem, StateNames, UsedParts
    from privtab.state.nodes import (
        ENTITY_COLUMNS,
        Assignment,
        AttributeRow,
        ColumnRows,
        Grant,
        Placement,
        State,
    )
    from privtab.state.principal_rows import principal_entity, scoped_principal
    from privtab.state.raw import TABLE_COLUMNS, RawReader, RawRow, RawState, arrow_cells, row_text
    from privtab.state.read_yaml import read_yaml_rows
    from privtab.state.shards import PartText
else:
    __getattr__, __dir__, __all__ = face(__name__)
