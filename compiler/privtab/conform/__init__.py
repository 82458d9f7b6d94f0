"""Whether a running system obeys its table: questions made from the minimal sets of each row, asked through a driver."""
