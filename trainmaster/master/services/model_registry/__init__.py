"""Registered models with their versions, and which trials use a checkpoint."""
