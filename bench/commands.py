"""Every command, in the order in which the help shows them."""

from __future__ import annotations

from bench import (
    add,
    beside,
    consume,
    debezium,
    draining,
    figures,
    history,
    idle,
    inbox,
    latency,
    memory,
    outage,
    parked,
    publish,
    record,
    relays,
    steady,
    write,
)

COMMANDS = (
    draining,
    debezium,
    latency,
    idle,
    add,
    write,
    beside,
    consume,
    inbox,
    history,
    relays,
    memory,
    parked,
    outage,
    publish,
    steady,
    record,
    figures,
)
"""Modules with ``add_parser(commands)``, which sets ``run(options)`` and ``table(summary)``."""
