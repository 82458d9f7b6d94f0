"""What one user may see of a type, as one expression over the names of its paths, for queries over tables of entities."""
