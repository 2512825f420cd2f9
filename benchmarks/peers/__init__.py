"""Alternatives to trainmaster, set up for comparison."""
