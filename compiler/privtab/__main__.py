"""`python -m privtab`: the command line."""

from privtab.cli import main

main()
