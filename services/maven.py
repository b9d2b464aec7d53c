"""Jars from Maven Central, by Maven itself, so that its settings and its local repository hold."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from services.cache import kept
from services.place import Place, locked
from services.process import ServiceError, run

POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pillarbox.services</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{0}
  </dependencies>
</project>
"""
DEPENDENCY = """    <dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
    </dependency>"""


def jars(place: Place, name: str, *coordinates: str) -> Path:
    """A folder in the cache with the jars `group:artifact:version` and all that they need to run."""
    return kept(place.cache / name, lambda new: _copy(place, new, coordinates, transitive=True))


def jar(place: Place, coordinate: str, sha256: str, folder: Path) -> Path:
    """One jar alone, copied into `folder` and checked against its sha256."""
    _copy(place, folder, [coordinate], transitive=False)
    _, artifact, version = coordinate.split(":")
    path = folder / f"{artifact}-{version}.jar"
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != sha256:
        raise ServiceError(f"{coordinate} has sha256 {found}, not {sha256}")
    return path


def _copy(place: Place, folder: Path, coordinates: Sequence[str], *, transitive: bool) -> None:
    pom = folder / "pom.xml"
    pom.write_text(POM.format("\n".join(DEPENDENCY.format(*one.split(":")) for one in coordinates)))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}", f"-DexcludeTransitive={str(not transitive).lower()}"]
    # One Maven at a time: two that fill an empty local repository together may read each other's half-written files.
    with locked(place.cache / "maven.lock"):
        run(command, place.path("log") / f"maven-{folder.name}.log", seconds=900)
