"""`python -m tests.pbs up|down`."""

from tests.pbs.openpbs import main

main()
