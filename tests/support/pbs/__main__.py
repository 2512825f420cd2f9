"""`python -m tests.support.pbs up|down`."""

from tests.support.pbs.openpbs import main

main()
