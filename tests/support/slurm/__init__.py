"""Slurm sites, and recorded answers of its releases."""
