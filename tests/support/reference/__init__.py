"""Determined's published client, and its commands."""
