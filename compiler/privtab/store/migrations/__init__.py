"""Migrations of a store's SQL tables."""
