"""The real databases and brokers of the tests, private to this checkout: `python -m services up`.

Tests break them by the name of a process (`kafka2`, `postgres`, ...):

    import services

    with services.killed("kafka2", "kafka3"):   # SIGKILL; both are registered again afterwards
        ...
    with services.stopped("rabbitmq"):          # SIGSTOP, then SIGCONT
        ...

`kill`, `start`, `stop` and `cont` are the single steps. A test that breaks a shared server is marked `fault` and never
runs beside another test; one on a server that is not ours (`services.running()` tells) is skipped.
"""

from services.control import down, running, up, urls
from services.faults import cont, kill, killed, start, stop, stopped
from services.process import ServiceError

__all__ = ["ServiceError", "cont", "down", "kill", "killed", "running", "start", "stop", "stopped", "up", "urls"]
