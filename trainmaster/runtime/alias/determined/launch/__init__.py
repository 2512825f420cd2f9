"""`determined.launch`: see `trainmaster.launchers`."""
