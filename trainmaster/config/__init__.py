"""Experiment and master configuration: models, defaults, merge rules and messages.

Nothing is imported here, as importing pydantic takes longer than starting the command line. Entry points are
`trainmaster.config.experiment.parse_experiment` and `trainmaster.config.master.parse_master`; errors in a file are
raised as one `trainmaster.config.messages.ConfigError` that lists all of them.
"""
