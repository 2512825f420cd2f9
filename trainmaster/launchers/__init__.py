"""How the workers of one trial are started inside the job: script, torchrun. Python 3.8, standard library
only."""
