"""One module for each version of a store's SQL tables."""
