"""The soak: load, a storm of random kills and cuts for minutes, then a full accounting by event id."""

from __future__ import annotations

from .accounts import Accounts, Finding, balance
from .options import SoakOptions
from .result import SoakResult
from .running import run_soak

__all__ = ["Accounts", "Finding", "SoakOptions", "SoakResult", "balance", "run_soak"]
