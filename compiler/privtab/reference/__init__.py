"""The reference engine: the semantics of policies as plain code, the oracle for every other engine."""
