"""`python -m headcount` is the command `headcount`."""

from headcount.cli.main import main

main()
