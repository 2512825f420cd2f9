"""The REST surface: one router per resource; parse, authorise, call a service, shape the answer."""
