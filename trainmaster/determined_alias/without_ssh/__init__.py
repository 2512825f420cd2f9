"""Launchers under `determined.launch` that need no SSH between the nodes."""
