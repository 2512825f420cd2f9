"""Removes for good what was deleted or has reached its time: experiments, checkpoints, logs, sessions."""
