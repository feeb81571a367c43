"""``paceline check``: is the text really the same? Evidence from a user's model, or two servers."""
