"""Test whether a running system obeys its table, by questions made from the minimal sets of each row and asked through a driver."""
