"""The SDK that scripts import as `determined.experimental.client`, as far as they use it in jobs.

Standard library only, over the job's own session with the master. What is left out says so.
"""
