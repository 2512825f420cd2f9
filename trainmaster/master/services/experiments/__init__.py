"""Experiments and trials: creation, search, changes, views."""
