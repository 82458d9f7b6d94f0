"""A store over HTTP: rows, changes and operations for any system by its policy, beside the AuthZEN API on the same store."""
