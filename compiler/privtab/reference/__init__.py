"""The reference engine: the meaning of policies as plain code, the oracle that every other engine is compared with."""
