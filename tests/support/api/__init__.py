"""Calls of the REST API, and jobs and people that tests play."""
