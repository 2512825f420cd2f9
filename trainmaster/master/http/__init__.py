"""The HTTP edge: what every request passes before a router, and what routers share."""
