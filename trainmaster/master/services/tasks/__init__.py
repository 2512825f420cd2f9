"""Commands, notebooks, shells, TensorBoards and generic tasks, and access to the services that they run."""
