"""`pillarbox effects` as a user meets it."""

import pytest

from pillarbox.effects import Effects, idempotency_key
from pillarbox.store.engines import relay_engine

from .events import Shop
from .processes import Inline


def in_doubt(shop: Shop) -> str:
    def fail(key: str) -> None:
        raise TimeoutError("charging anna@example.org")

    engine = relay_engine(shop.database)
    with pytest.raises(TimeoutError):
        Effects("billing", engine).call("e-1", "charge", fail)
    engine.dispose()
    return idempotency_key("billing", "e-1", "charge")


def test_effects_in_doubt_are_listed_shown_and_resolved_for_the_record(shop: Shop, inline: Inline) -> None:
    """C088"""
    assert "No effect is in doubt." in inline.run("effects", "list", env=shop.env).out
    effect_id = in_doubt(shop)
    listed = inline.run("effects", "list", env=shop.env).out
    assert effect_id in listed
    assert "TimeoutError" in listed
    assert "anna" not in listed
    found = inline.run("effects", "list", "--consumer", "billing", "--json", env=shop.env).json["effects"]
    assert [(one["id"], one["state"], one["step"]) for one in found] == [(effect_id, "unknown", "charge")]
    assert "anna@example.org" in inline.run("effects", "show", effect_id, env=shop.env).out
    done = inline.run(
        "effects", "resolve", effect_id, "--done", '{"id": 7}', "--by", "bert", "--reason", "asked them", env=shop.env
    )
    assert (done.code, "let event e-1 come again" in done.out) == (0, True)
    shown = inline.run("effects", "show", effect_id, "--json", env=shop.env).json
    assert (shown["effect"]["state"], shown["answer"]) == ("done", '{"id": 7}')
    assert [(one["resolved_by"], one["reason"], one["verdict"]) for one in shown["resolutions"]] == [
        ("bert", "asked them", "done")
    ]
    assert "bert" in inline.run("effects", "show", effect_id, env=shop.env).out
    again = inline.run("effects", "resolve", effect_id, "--refused", "--reason", "no", env=shop.env)
    assert (again.code, "PB-047" in again.err) == (1, True)


def test_one_verdict_has_to_be_named_and_the_way_back_waits_for_it(shop: Shop, inline: Inline) -> None:
    effect_id = in_doubt(shop)
    assert inline.run("effects", "resolve", effect_id, env=shop.env).code == 2
    assert inline.run("effects", "resolve", effect_id, "--not-done", "--refused", env=shop.env).code == 2
    back = inline.run("init", "--part", "inbox", "--downgrade", "0001", env=shop.env)
    assert (back.code, "Effects are in doubt" in back.err) == (4, True)
    assert inline.run("effects", "resolve", effect_id, "--not-done", "--reason", "never came", env=shop.env).code == 0
    assert "Took the inbox back" in inline.run("init", "--part", "inbox", "--downgrade", "0001", env=shop.env).out
    assert "CREATE TABLE inbox_effect" in (
        inline.run("init", "--part", "inbox", "--sql", "--since", "0001", env=shop.env).out.replace(
            "IF NOT EXISTS ", ""
        )
    )
