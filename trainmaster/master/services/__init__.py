"""The master's operations: one function for each operation, one package for each subject.

A function owns its transaction. The packages are layers, from `clusters` up to `removal` (pyproject.toml).
"""
