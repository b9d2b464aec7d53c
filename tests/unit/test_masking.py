"""No password reaches a screen, a log or an error."""

import pytest

from pillarbox.masking import mask_url, mask_whole_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql+pymysql://app:s3cret@db/shop", "mysql+pymysql://app:***@db/shop"),
        ("amqp://guest:guest@127.0.0.1:5672/%2F", "amqp://guest:***@127.0.0.1:5672/%2F"),
        ("kafka://u:p@h1:9092,h2:9092", "kafka://u:***@h1:9092,h2:9092"),
        ("postgresql://u:p@ss/w?rd@h/db", "postgresql://u:***@h/db"),
        (
            "postgresql://h/db?user=u&password=p4&sslmode=require",
            "postgresql://h/db?user=u&password=***&sslmode=require",
        ),
        ("kafka://h:1?sasl.password=x&ssl.key.password=y", "kafka://h:1?sasl.password=***&ssl.key.password=***"),
        ("amqp://:p@h", "amqp://:***@h"),
        ("mysql://user@server:p@h/db", "mysql://user@server:***@h/db"),
        ("cannot reach mysql://a:b@c now", "cannot reach mysql://a:***@c now"),
    ],
)
def test_passwords_in_urls_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s cret@h/db", "postgresql://u:***@h/db"),
        ("u:s3cret@h/db", "u:***@h/db"),
        ("mysql://user@server:p@:/ ?@h/db", "mysql://user@server:***@h/db"),
        ("mysql://u://p@h/db", "mysql://u:***@h/db"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
        ("embedded:///tmp/a@b.db", "embedded:///tmp/a@b.db"),
        ("kafka://h1:9092,h2:9092", "kafka://h1:9092,h2:9092"),
    ],
)
def test_a_string_that_is_a_url_is_masked_whatever_its_password_holds(url: str, shown: str) -> None:
    assert mask_whole_url(url) == shown


@pytest.mark.parametrize(
    "text", ["sqlite:////tmp/a.db", "embedded:///log.db", "kafka://h1:9092,h2:9092", "no url: a@b"]
)
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert mask_url(text) == text
