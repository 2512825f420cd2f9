"""Webhooks, log policies and streamed updates: what is sent to others when something changes."""
