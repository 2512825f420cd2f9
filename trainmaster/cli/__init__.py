"""The command lines: `det` for users, `trainmaster` for administrators."""
