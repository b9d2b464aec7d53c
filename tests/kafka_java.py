"""Kafka's own Java producer, as the console tool of the same release as the brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from services.cache import kept
from services.kafka import JVM, LIBRARIES
from services.maven import jar, jars
from services.place import Place

TOOLS = "org.apache.kafka:kafka-tools:4.4.0"
TOOLS_SHA256 = "4eb9a7fbfd63badfd8d1a677aa2d54b47b2b2d442ff7d68fd223972afea1954c"
SEPARATOR = "\x1f"
"""Between key and body on the tool's standard input; neither may hold it, nor a line's end."""


def java_produce(servers: str, topic: str, bodies_by_key: Mapping[str, str]) -> None:
    """Send a record for each key by the Java client with its default partitioner; returns when all are answered."""
    place = Place.of_checkout()
    tools = kept(place.cache / "kafka-tools-alone-4.4.0", lambda new: _fetch(place, new))
    classpath = f"{tools}/*:{jars(place, 'kafka-4.4.0', *LIBRARIES)}/*"
    options = ["--bootstrap-server", servers, "--topic", topic]
    reader = ["--reader-property", "parse.key=true", "--reader-property", f"key.separator={SEPARATOR}"]
    lines = "".join(f"{key}{SEPARATOR}{body}\n" for key, body in bodies_by_key.items())
    subprocess.run(
        ["java", "-Xmx128m", *JVM, "-cp", classpath, "org.apache.kafka.tools.ConsoleProducer", *options, *reader],
        input=lines.encode(),
        capture_output=True,
        check=True,
        timeout=90,
    )


def _fetch(place: Place, folder: Path) -> None:
    jar(place, TOOLS, TOOLS_SHA256, folder)
