"""Who holds what: tables of rows that are read, validated and indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.state.attribute_rows import attribute_parts, attribute_texts
    from privtab.state.chains import GROUP_PREFIX, ROLE_PREFIX, ScopeOverlap
    from privtab.state.coded import CodedColumn, RawTable
    from privtab.state.conflicts import conflicts
    from privtab.state.findings import RowLocation, StateFinding
    from privtab.state.folders import table_files
    from privtab.state.holdings import Holdings
    from privtab.state.index import index_bytes, index_document
    from privtab.state.large import CheckedTable, ColumnChecker
    from privtab.state.large_index import ColumnIndex
    from privtab.state.links import LINK_COLUMNS, derived_rows, with_derived_rows
    from privtab.state.load import from_tables, load_raw_state, no_table_message, validate, validate_with_places
    from privtab.state.located import locations, lying_in
    from privtab.state.names import Places, RowProblem, StateNames, UsedParts
    from privtab.state.nodes import (
        ENTITY_COLUMNS,
        Assignment,
        AttributeRow,
        ColumnRows,
        Effect,
        Grant,
        Placement,
        State,
    )
    from privtab.state.principal_rows import may_name_entity, principal_entity, scoped_principal
    from privtab.state.raw import TABLE_COLUMNS, NotText, RawReader, RawRow, RawState, arrow_cells
    from privtab.state.read_parquet import TABLE_FORMATS, table_format
    from privtab.state.read_yaml import read_yaml_rows
    from privtab.state.row_texts import place_text, row_sentence, row_text
    from privtab.state.shards import PEOPLE_PART, PartText
    from privtab.state.written import as_written
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "attribute_rows": "attribute_parts attribute_texts",
            "chains": "GROUP_PREFIX ROLE_PREFIX ScopeOverlap",
            "coded": "CodedColumn RawTable",
            "conflicts": "conflicts",
            "findings": "RowLocation StateFinding",
            "folders": "table_files",
            "holdings": "Holdings",
            "index": "index_bytes index_document",
            "large": "CheckedTable ColumnChecker",
            "large_index": "ColumnIndex",
            "links": "LINK_COLUMNS derived_rows with_derived_rows",
            "load": "from_tables load_raw_state no_table_message validate validate_with_places",
            "located": "locations lying_in",
            "names": "Places RowProblem StateNames UsedParts",
            "nodes": "Assignment AttributeRow ColumnRows ENTITY_COLUMNS Effect Grant Placement State",
            "principal_rows": "may_name_entity principal_entity scoped_principal",
            "raw": "NotText RawReader RawRow RawState TABLE_COLUMNS arrow_cells",
            "read_parquet": "TABLE_FORMATS table_format",
            "read_yaml": "read_yaml_rows",
            "row_texts": "place_text row_sentence row_text",
            "shards": "PEOPLE_PART PartText",
            "written": "as_written",
        },
    )
