"""What a handler does outside the database: payments, mails, calls of other services.

No database can roll them back, so their record is kept beside the inbox: begun, done with its answer, or in doubt.
"""

from ..errors import EffectInDoubt, EffectPending
from ..errors import EffectNotDone as NotDone
from ..errors import EffectRefused as Refused
from .calling import Effects
from .doubt import ASK, SAME_KEY, InDoubt, Lookup
from .identity import idempotency_key
from .steps import Steps

__all__ = [
    "ASK",
    "SAME_KEY",
    "EffectInDoubt",
    "EffectPending",
    "Effects",
    "InDoubt",
    "Lookup",
    "NotDone",
    "Refused",
    "Steps",
    "idempotency_key",
]
