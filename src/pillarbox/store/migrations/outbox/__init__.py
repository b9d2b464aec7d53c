"""History of the outbox tables."""
