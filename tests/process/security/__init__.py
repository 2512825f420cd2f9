"""Attacks on a running master by users with an account; each must fail."""
