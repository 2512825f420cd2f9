"""Attacks, and what they are aimed at."""
