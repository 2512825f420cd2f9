"""Databases filled with many rows, and query plans."""
