"""Dispatcher for Slurm: batch jobs through Slurm's own commands (20.02 to 26.05)."""

from trainmaster.dispatchers.slurm.dispatcher import SlurmDispatcher

__all__ = ["SlurmDispatcher"]
