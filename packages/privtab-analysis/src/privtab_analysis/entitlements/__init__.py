"""Who may do what, and through which rows: one evaluator over the index of a state, for one entity, one subject or all."""
