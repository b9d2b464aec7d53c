"""``add`` in the caller's transaction: :class:`Outbox` and :class:`AsyncOutbox`."""

from .outbox import AsyncOutbox, Outbox, Queued, Routes

__all__ = ["AsyncOutbox", "Outbox", "Queued", "Routes"]
