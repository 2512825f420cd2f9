"""A real PBS for tests: the one of this machine (`site`), or an OpenPBS brought up by `python -m tests.pbs up`."""
