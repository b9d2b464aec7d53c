"""``python -m examples.orders``: all processes under load and under fire, and then the balance."""

import argparse
import itertools
import sys
import tempfile
import threading
import time
from pathlib import Path

from .account import Balance, balance, undecided
from .customers import Answers, send, wishes
from .picture import picture
from .places import make_places
from .running import Running
from .watching import Watch

SETTLE_SECONDS = 60.0


def main() -> int:
    """Returns 0 when the balance holds."""
    options = _options()
    make_places()
    # The services read their URLs when they are imported, so the places come first.
    from . import orders, stock
    from .prepare import prepare

    pieces = options.orders  # lamps for everybody; unicorns there are none
    prepare({"lamp": pieces, "unicorn": 0})
    wanted = list(wishes(options.orders, short=options.short, refused=options.refused))
    folder = Path(options.out or tempfile.mkdtemp(prefix="pillarbox-orders-"))
    folder.mkdir(parents=True, exist_ok=True)
    with Running(folder) as running, Watch(orders.engine, stock.engine) as watch:
        running.wait_until_up()
        begun = watch.seconds
        done = threading.Event()
        striker = threading.Thread(target=_strike, args=(running, watch, done, options.kills, options.kill_every))
        striker.start()
        answers = send(running.port, wanted, customers=8, per_second=options.rate)
        sent_after = watch.seconds - begun
        done.set()
        striker.join()
        deadline = time.monotonic() + SETTLE_SECONDS
        while undecided(orders.engine) and time.monotonic() < deadline:
            time.sleep(0.05)
        drained_after = watch.seconds - begun - sent_after
    found = balance(orders.engine, stock.engine, pieces)
    (folder / "backlog.svg").write_text(picture(watch.samples, watch.kills))
    kills = {name: sum(one == name for _, one in watch.kills) for name in running.services}
    _tell(found, answers, kills, watch.peak.waiting, sent_after, drained_after, folder)
    return 0 if found.holds else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    parser.add_argument("--orders", type=int, default=1_000, help="how many (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="orders per second (default: %(default)g)")
    parser.add_argument("--short", type=float, default=0.2, help="share that stock must refuse (default: %(default)g)")
    parser.add_argument("--refused", type=float, default=0.1, help="share with a used voucher (default: %(default)g)")
    parser.add_argument("--kills", type=int, default=6, help="how often a process is killed (default: %(default)s)")
    parser.add_argument("--kill-every", type=float, default=2.5, help="seconds between kills (default: %(default)g)")
    parser.add_argument("--out", help="folder for the logs and the plot (default: a new temporary one)")
    return parser.parse_args()


def _strike(running: Running, watch: Watch, done: threading.Event, kills: int, every: float) -> None:
    """Kill the processes in turn until enough, or until all orders are sent."""
    left = kills
    for service in itertools.cycle(running.services.values()):
        if left == 0 or done.wait(every):
            return
        if service.kill():
            watch.note_kill(service.name)
            left -= 1


def _tell(
    found: Balance, answers: Answers, kills: dict[str, int], peak: int, sent: float, drained: float, folder: Path
) -> None:
    rows = {
        "orders accepted": found.orders,
        "refused by their own transaction (voucher)": answers.refused,
        "requests sent again, answer unknown": answers.again,
        "confirmed": found.confirmed,
        "cancelled, no stock": found.cancelled,
        **{f"kill -9 of {name}": count for name, count in kills.items()},
        "ghosts": found.ghosts,
        "lost": found.lost,
        "reserved twice": found.twice,
        "wrong in another way": found.wrong,
        "longest backlog, events": peak,
        "all orders sent after, s": round(sent, 1),
        "all decided after, s more": round(drained, 1),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        sys.stdout.write(f"{name:{width}}  {value:>8}\n")
    sys.stdout.write(f"\n{folder}/backlog.svg shows the backlog; the services' logs are beside it.\n")


if __name__ == "__main__":
    sys.exit(main())
