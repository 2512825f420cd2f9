"""Docker engines, hosts with agents, and an image registry."""
