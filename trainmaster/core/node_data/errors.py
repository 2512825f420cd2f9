"""What can go wrong while data is copied to a node."""

from __future__ import annotations


class DataFault(Exception):
    """The data cannot be had on this node; the message says which, why and what to do."""


class Stopped(Exception):
    """The job was asked to leave meanwhile."""
