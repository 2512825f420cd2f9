"""What the master does, one function for each operation and a package for each subject.

A function owns its transaction. The packages are layers, from `clusters` up to `removal` (pyproject.toml).
"""
