"""A consumer's dead letters: looked at, and sent to it again.

``letters`` says what a place of dead letters can do, ``registry`` finds the one for a broker's URL, ``replaying``
chooses and sends; each broker has a file of its own.
"""

from .letters import DeadLetterBox, Letter, Order
from .registry import open_dead_letters
from .replaying import Choice, Replayed, chosen, replay

__all__ = ["Choice", "DeadLetterBox", "Letter", "Order", "Replayed", "chosen", "open_dead_letters", "replay"]
