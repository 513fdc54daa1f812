"""`python -m handraise`."""

from handraise.cli import main

main()
