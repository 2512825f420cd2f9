"""Copies data to the node's own disk before a training starts, once for all jobs of an account on that node.

The runtime starts `keeper` as a process of its own: it copies, then holds what the job uses until the job ends.
"""
