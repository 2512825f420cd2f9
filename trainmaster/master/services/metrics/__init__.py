"""Metric reports, their summaries, and series of them."""
