"""The demo's books: ghosts, losses and double effects are found by event id."""

from pillarbox.demo.ledger import balance


def test_books_that_agree_are_balanced() -> None:
    books = balance(["a", "b"], 2, ["a", "b", "b"], ["a", "b"], deliveries=3)
    assert books.balanced
    assert (books.published, books.duplicates_delivered) == (2, 1)


def test_a_message_without_an_order_is_a_ghost() -> None:
    assert balance(["a"], 0, ["a", "x"], ["a", "x"], 2).ghosts == 1


def test_an_order_nobody_applied_is_a_loss() -> None:
    books = balance(["a", "b"], 0, ["a"], ["a"], 1)
    assert (books.losses, books.balanced) == (1, False)


def test_an_effect_that_happened_twice_is_counted_once_per_event() -> None:
    books = balance(["a"], 0, ["a"], ["a", "a", "a"], 3)
    assert (books.applied, books.applied_twice, books.duplicates_delivered) == (1, 1, 2)
