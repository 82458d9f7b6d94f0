"""The state of another system as the rows of a state: what an import document says of its answers, carried out."""
