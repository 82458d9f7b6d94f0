"""Entitlements, and the rows through which they hold: one evaluator over the index of a state, for one entity, one subject or all."""
