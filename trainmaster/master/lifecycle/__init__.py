"""Pure state machines: events go in, decisions come out. No I/O, no clock, no random."""
