"""Agents, the job queue, and slot usage, as users and administrators see them."""
