"""What a running relay shows to the outside: health, readiness and metrics over HTTP."""
