"""Searches of short trials under random faults, and the check by value that nothing is lost, doubled or charged."""
