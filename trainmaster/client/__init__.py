"""Talking to a master: a typed, synchronous client on the standard library alone, so that `det` starts at once."""
