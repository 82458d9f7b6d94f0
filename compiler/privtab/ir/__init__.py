"""The intermediate representation, its canonical form and its reference meaning."""
