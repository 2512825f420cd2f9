"""Experiment and master configuration: models, defaults, merge rules and messages.

Nothing is imported here: the command line starts faster than pydantic loads. Entry points are
`trainmaster.config.experiment.parse_experiment` and `trainmaster.config.master.parse_master`; what is wrong
with a file comes as a `trainmaster.config.messages.ConfigError` that lists everything at once.
"""
