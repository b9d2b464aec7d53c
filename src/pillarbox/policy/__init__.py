"""Decisions: pure functions of what is known; no I/O, no clock, no chance of their own."""
