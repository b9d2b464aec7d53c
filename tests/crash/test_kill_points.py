"""Real processes, killed with SIGKILL at each named point: no ghost, no loss, every effect once.

The order service, the relay and the stock service are those of ``pillarbox.demo``; here each run is killed at one point
only, so that a failure names the place.
"""

import pytest

from pillarbox.demo.ledger import Books
from pillarbox.demo.options import DemoOptions
from pillarbox.demo.shop import failing_orders
from pillarbox.demo.strikes import Strike
from pillarbox.demo.way import run_way
from tests.crash.pairs import PAIRS

ORDERS = 80
POINTS = [  # role, point, which passage of it
    ("shop", "shop.before-commit", 20),
    ("shop", "shop.after-commit", 20),
    ("relay", "relay.after-claim", 2),
    ("relay", "relay.after-confirm", 2),
    ("relay", "relay.after-settle", 2),
    ("stock", "consumer.after-handler", 20),
    ("stock", "consumer.after-commit", 20),
]


@pytest.fixture(params=[pytest.param(one, id=str(one), marks=[pytest.mark.long] if one.again else []) for one in PAIRS])
def options(request: pytest.FixtureRequest) -> DemoOptions:
    """Where this run lives: one database server and one broker."""
    database, broker = request.param.urls(request)
    return DemoOptions(only="outbox", database=database, broker=broker, orders=ORDERS, failing=0.1)


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("role", "point", "times"), POINTS, ids=[point for _, point, _ in POINTS])
def test_a_process_killed_there_makes_no_ghost_no_loss_and_no_second_effect(
    options: DemoOptions, role: str, point: str, times: int
) -> None:
    """M01, M05, M12 and C001, C002, C006, C084: whatever dies, and wherever, the books balance."""
    strikes = {"shop": [], "relay": [], "stock": []} | {role: [Strike(point, times)]}

    books, kills = run_way("outbox", options, lambda glance: None, strikes)

    assert kills[role] == 1, f"the {role} never came to {point}"
    assert (books.ghosts, books.losses, books.applied_twice) == (0, 0, 0), books
    assert books.orders == books.applied == _expected(options, point)
    assert _redelivered_where_it_must(books, point)


def _expected(options: DemoOptions, point: str) -> int:
    """Orders that must exist: all but those that failed, and the one whose shop died before its commit."""
    died_uncommitted = 1 if point == "shop.before-commit" else 0
    return options.orders - len(failing_orders(options.orders, options.failing, options.seed)) - died_uncommitted


def _redelivered_where_it_must(books: Books, point: str) -> bool:
    """A relay that dies after the confirm must send again, a consumer that dies before its acknowledgement must get
    it again: otherwise the kill did not hit where it says."""
    if point in ("relay.after-confirm", "consumer.after-commit", "consumer.after-handler"):
        return books.duplicates_delivered > 0
    return True
