"""Mistakes in the call of an effect, refused while nothing is in doubt yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pillarbox import install, sqlite_engine
from pillarbox.effects import ASK, SAME_KEY, Effects, Lookup
from pillarbox.errors import ConfigError

EVENT = "0195d3c1-7d6e-7c6b-8f0a-3f1f3c1f8a11"


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'effects.db'}")
    install(engine, ["inbox"])
    return Effects("billing", engine)


@pytest.mark.parametrize("choice", ["ask", None, Lookup, type(ASK)])
def test_a_choice_that_does_not_exist_is_refused_and_never_taken_for_another(effects: Effects, choice: Any) -> None:
    called = list[str]()
    with pytest.raises(ConfigError, match="SAME_KEY, ASK or Lookup"):
        effects.call(EVENT, "charge", called.append, in_doubt=choice)
    assert called == []


def test_an_async_function_is_refused_and_leaves_no_doubt(effects: Effects) -> None:
    async def charge(key: str) -> int:
        return 7

    with pytest.raises(ConfigError, match=r"asyncio\.to_thread"):
        effects.call(EVENT, "charge", charge)
    assert effects.call(EVENT, "charge", lambda key: 7, in_doubt=ASK) == 7
    assert effects.call(EVENT, "charge", lambda key: 8, in_doubt=SAME_KEY) == 7


def test_a_function_that_cannot_take_the_key_is_refused_and_leaves_no_doubt(effects: Effects) -> None:
    with pytest.raises(ConfigError, match=r"cannot be called with the key.*\n?.*lambda key"):
        effects.call(EVENT, "charge", lambda: 7)  # type: ignore[arg-type, misc]
    assert effects.call(EVENT, "charge", lambda key: 8, in_doubt=ASK) == 8
