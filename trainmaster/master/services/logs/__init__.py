"""Task logs and the log of the master."""
