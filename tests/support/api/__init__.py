"""Clients of the REST API, and simulated jobs and users."""
