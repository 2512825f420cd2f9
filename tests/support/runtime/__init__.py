"""Jobs that run the runtime against a small master."""
