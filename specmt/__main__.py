"""`python -m specmt`."""

from specmt.cli import main

main()
