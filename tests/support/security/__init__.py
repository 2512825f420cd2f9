"""Attacks, and their targets."""
