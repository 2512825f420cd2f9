"""What the master does, in verbs. Each verb owns its transaction."""
