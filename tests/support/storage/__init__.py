"""Real servers of object stores on this machine."""
