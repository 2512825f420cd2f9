"""The JSON of requests and answers."""
