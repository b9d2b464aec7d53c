"""Where a demo lives: apart from everything else on the same servers."""

from pillarbox.demo.options import DemoOptions
from pillarbox.demo.places import PREFIX, new_world


def test_each_run_reads_under_a_name_of_its_own() -> None:
    """On Kafka it is the group: with one in common, two demos, or a demo and a service, take each other's events."""
    with new_world(DemoOptions()) as one, new_world(DemoOptions()) as other:
        assert one.consumer.startswith(PREFIX)
        assert one.consumer != other.consumer
