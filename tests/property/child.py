"""A relay as a process, for rounds that really kill: ``python -m tests.property.child`` with a task on its input."""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from random import Random

from pillarbox.policy.retry import RetryPolicy
from pillarbox.relay.ordered import OrderedRelay
from pillarbox.relay.settings import RelaySettings
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from tests.property.broker import DicePublisher, odds_of
from tests.property.fate import Fate
from tests.property.files import FileBroker
from tests.property.hunt import quick_duties


def main() -> None:
    """Run until SIGTERM."""
    task = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    quick_duties()
    random = Random(task["seed"])
    settings = RelaySettings(**{**task["settings"], "retry": RetryPolicy(**task["settings"]["retry"])})
    store = PartitionStore(relay_engine(task["url"]), relay_id=task["name"], lease=settings.lease)
    publisher = DicePublisher(FileBroker(Path(task["path"])), Fate(task["name"]), odds_of(random), random)
    relay = OrderedRelay(store, publisher, settings, chance=random.random)
    signal.signal(signal.SIGTERM, lambda *_: relay.stop())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    Path(task["up"]).touch()
    relay.run()


def _end_with(parent: int) -> None:
    """Outlive nobody."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
