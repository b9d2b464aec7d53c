"""The real databases and brokers of the tests, private to this checkout: `python -m services up`.

Tests break them with the functions below, by the name of a part (`kafka2`, `postgres`, ...):

    from services import cont, kill, start, stop

    kill("kafka2")      # SIGKILL
    start("kafka2")     # returns when the broker is registered again
    stop("rabbitmq")    # SIGSTOP
    cont("rabbitmq")    # SIGCONT

A test that breaks a shared server puts it right again before it ends, and never runs beside another test.
"""

from services.control import cont, down, kill, running, start, stop, up, urls
from services.process import ServiceError

__all__ = ["ServiceError", "cont", "down", "kill", "running", "start", "stop", "up", "urls"]
