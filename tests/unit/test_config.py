"""Settings: file < environment < flags, each value with its source, nothing mistyped goes unnoticed."""

from pathlib import Path

import pytest

from pillarbox.config import Config, Loaded, keys, load, variable
from pillarbox.errors import ConfigError, DeadlineTooLong
from pillarbox.policy.retry import RetryPolicy
from pillarbox.relay import RelaySettings
from pillarbox.wiring import new_relay_id, relay_settings


def read(folder: Path, text: str = "", **environ: str) -> Loaded:
    if text:
        (folder / "pillarbox.toml").write_text(text, encoding="utf-8")
    return load({}, environ, folder=folder)


def test_without_anything_the_defaults_are_those_of_the_library(tmp_path: Path) -> None:
    assert relay_settings(read(tmp_path).config.relay) == RelaySettings(retry=RetryPolicy())


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "pillarbox.toml").write_text("[relay]\nbatch = 1\nlease = 100\n[relay.retry]\ncap = 7\n")
    environ = {"PILLARBOX_RELAY__BATCH": "2", "PILLARBOX_RELAY__LEASE": "200", "PILLARBOX_RELAY__RETRY__BASE": "0.5"}

    loaded = load({"relay.batch": 3, "relay.id": None}, environ, folder=tmp_path)

    relay = loaded.config.relay
    assert (relay.batch, relay.lease, relay.retry.cap, relay.retry.base) == (3, 200, 7, 0.5)
    sources = {s.key: s.source for s in loaded.settings()}
    assert sources["relay.batch"] == "flag --batch"
    assert sources["relay.lease"] == "environment PILLARBOX_RELAY__LEASE"
    assert sources["relay.retry.cap"] == f"file {tmp_path / 'pillarbox.toml'}"
    assert sources["relay.id"] == "default"


def test_the_file_may_be_named_by_argument_or_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("broker = 'kafka://a'")
    (tmp_path / "b.toml").write_text("broker = 'kafka://b'")
    environ = {"PILLARBOX_CONFIG": str(tmp_path / "a.toml")}
    assert load({}, environ, folder=tmp_path).config.broker == "kafka://a"
    assert load({}, environ, file=tmp_path / "b.toml").config.broker == "kafka://b"
    with pytest.raises(ConfigError, match=r"c\.toml cannot be read: No such file"):
        load({}, {}, file=tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[relay]\nbacth = 5", "relay.bacth in .* is no setting.*Did you mean relay.batch"),
        ("databse = 'x'", "databse .* is no setting.*Did you mean database"),
        ("[zebra]\nx = 1", "zebra .* is no setting"),
        ("relay = 5", "relay .* is a table"),
        ("[relay]\nbatch = 'many'", r"relay.batch, from file .*got 'many'"),
        ("[relay]\nbatch = 0", "relay.batch, from file .*greater than or equal to 1"),
        ("[relay]\npoll_min = 3.0", "poll_min .* is above poll_max"),
        ("[relay.retry]\nbase = 70.0", "base .* is above cap"),
        ("[log]\nlevel = 'loud'", "log.level, from file .*'debug', 'info'"),
        ("database =", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_setting_and_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text)


def test_a_broker_deadline_of_half_the_lease_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeadlineTooLong):
        read(tmp_path, PILLARBOX_RELAY__LEASE="40")


def test_unknown_environment_names_are_warned_about_and_have_no_effect(tmp_path: Path) -> None:
    loaded = read(tmp_path, PILLARBOX_RELAY__BACTH="5", PILLARBOX_TEST_MYSQL="x", PILLARBOX_CONFIG="", HOME="/x")
    assert loaded.warnings == (
        "PILLARBOX_RELAY__BACTH is no setting and has no effect. Did you mean PILLARBOX_RELAY__BATCH?",
    )
    assert loaded.config == Config()


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert read(tmp_path, "database = 'sqlite:///a.db'", PILLARBOX_DATABASE="").config.database == "sqlite:///a.db"


def test_passwords_are_masked_where_settings_are_shown_and_in_refusals(tmp_path: Path) -> None:
    loaded = read(tmp_path, PILLARBOX_DATABASE="mysql://u:geheim@h/d", PILLARBOX_BROKER="amqp://u:geheim@h")
    assert "geheim" not in str(loaded.settings())
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, PILLARBOX_RELAY__BATCH="mysql://u:geheim@h/d")
    assert "geheim" not in str(refused.value)


def test_every_setting_can_be_given_in_the_environment(tmp_path: Path) -> None:
    texts = {"relay.retry.jitter": "false", "log.json_lines": "true", "log.level": "ERROR", "relay.id": "r1"}
    texts |= {
        "database": "sqlite://",
        "broker": "memory:",
        "relay.lease": "50",
        "relay.batch": "9",
        "relay.poll_max": "3",
    }
    texts |= {"relay.retry.max_attempts": "4", "relay.retry.cap": "9", "relay.retry.base": "2", "relay.poll_min": "0.1"}
    texts |= {"relay.listen": "true", "relay.ownership": "row", "relay.on_failure": "skip"}
    texts |= {
        "retention.by_relay": "true",
        "retention.archive": "table",
        "retention.minimal_row_image": "true",
        "relay.max_bytes": "1048576",
    }
    rest = dict.fromkeys(set(keys()) - set(texts), "7")
    loaded = read(tmp_path, **{variable(key): text for key, text in (texts | rest).items()})
    assert loaded.warnings == ()
    assert {s.source.split()[0] for s in loaded.settings()} == {"environment"}


def test_relay_ids_are_unique_and_fit_their_column() -> None:
    made = {new_relay_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(name) <= 64 and name.isascii() for name in made)
