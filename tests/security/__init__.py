"""Attacks on a running master, as people with an account on the site could try them; each must fail."""
