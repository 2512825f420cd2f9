"""The helper program and an sshd, installed for tests."""
