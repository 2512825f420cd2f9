"""Files of users: contexts in the database, checkpoints and event files in storage."""
