"""Who holds what: tables of rows that are read, validated and indexed."""
