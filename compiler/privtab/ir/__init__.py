"""The intermediate representation, its canonical form, and exact comparison of conditions."""
