"""Permanent removal of what was deleted or has expired: experiments, checkpoints, logs, sessions."""
