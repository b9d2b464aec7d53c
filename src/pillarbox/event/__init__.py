"""What an event is: pure values, no I/O."""
