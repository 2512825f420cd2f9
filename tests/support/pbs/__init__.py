"""A real PBS for tests: the one of this machine (`site`), or one brought up by `python -m tests.support.pbs up`."""
