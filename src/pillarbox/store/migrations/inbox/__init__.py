"""History of the inbox table."""
