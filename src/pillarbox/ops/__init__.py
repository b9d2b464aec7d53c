"""What an operator does: look, find the dead letters, send them again. One read model for command line and page."""
