"""Launchers: start the workers of one trial inside the job. Python 3.8, standard library only."""
