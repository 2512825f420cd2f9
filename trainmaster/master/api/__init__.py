"""The REST API: one router per resource. A router parses the request, checks permission, calls a service and shapes the
response."""
