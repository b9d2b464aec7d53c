"""How the faults are brought about: to applications, to relays, to consumers."""
