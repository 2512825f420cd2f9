"""Pure state machines of experiments, trials and tasks: events in, decisions out. No I/O, no clock, no randomness."""
