"""The values of JSON columns, typed and frozen.

Each is read with defaults for what an older release did not write, and writes unknown keys of a newer release back.
`columns` has the types by which the tables hold them.
"""
