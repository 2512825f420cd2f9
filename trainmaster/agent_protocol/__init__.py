"""The protocol between a master and the agents on its hosts: messages, and archives of a job's files.

Both sides import it; it imports neither.
"""
