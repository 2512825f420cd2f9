"""Command-line programs: `det` for users, `trainmaster` for administrators."""
