"""The targets, one module each, named as mapping documents name it."""
