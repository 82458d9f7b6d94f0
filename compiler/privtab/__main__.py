"""`python -m privtab`: the command line."""

from privtab.command import main

if __name__ == "__main__":  # tools that document the package import every module
    main()
