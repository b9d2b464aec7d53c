"""Pillarbox: a transactional outbox. Your row and its event commit together; a relay publishes; a consumer applies once."""

from __future__ import annotations

__version__ = "0.1.0"
