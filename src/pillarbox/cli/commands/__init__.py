"""One file per command: its options and what it prints. Heavy imports stay inside, so that ``--help`` is quick."""
