"""Who somebody is and what they may do: users, sessions, tokens, groups, roles, and limits on their requests."""
