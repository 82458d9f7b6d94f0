"""The entities of a type that one user may see, as one expression over the names of their paths, for queries over tables of entities."""
