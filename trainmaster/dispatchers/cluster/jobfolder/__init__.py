"""Access to job folders as the account that owns them: in this process, or by `helper.py`, which root installs.

Standard library of Python 3.8 only: its modules also run on login nodes, as one file.
"""
