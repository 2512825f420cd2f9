"""How the workers of one trial are started inside the job: torchrun. Python 3.8, standard library
only."""
