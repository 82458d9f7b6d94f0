"""Who holds what: tables of rows, read, validated, indexed."""
