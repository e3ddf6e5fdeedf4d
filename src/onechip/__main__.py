"""`python -m onechip`: the command line."""

from onechip.cli import main

if __name__ == "__main__":
    main()
