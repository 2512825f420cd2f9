"""Benchmarks of the project's claims, each compared with the usual alternative. Run with `bash scripts/bench`."""
