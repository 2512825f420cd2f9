"""What every plugin of `trainmaster.storage` must do: a module of tests to import, in the environment of a plugin."""
