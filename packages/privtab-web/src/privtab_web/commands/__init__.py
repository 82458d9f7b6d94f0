"""The command that this package adds to `privtab`."""
