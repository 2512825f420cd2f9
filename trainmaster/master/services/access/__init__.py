"""Authentication and authorization: users, sessions, tokens, groups, roles, and limits on their requests."""
