"""Jars from Maven Central, by Maven itself, so that its settings and its local repository hold."""

import hashlib
import shutil
from pathlib import Path

from services.place import Place, locked
from services.process import ServiceError, run

POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pillarbox.services</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """    <dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
    </dependency>"""


def jars(place: Place, name: str, *coordinates: str, transitive: bool = True) -> Path:
    """A folder in the cache with the jars `group:artifact:version` and, if `transitive`, all that they need to run."""
    folder = place.cache / name
    # One Maven at a time: two that fill an empty local repository together may read each other's half-written files.
    with locked(place.cache / "maven.lock"):
        if not folder.exists():
            new = folder.with_name(f"{name}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            pom = new / "pom.xml"
            dependencies = "\n".join(DEPENDENCY.format(*one.split(":")) for one in coordinates)
            pom.write_text(POM.format(name=name, dependencies=dependencies))
            command: list[str | Path] = [
                "mvn",
                "-q",
                "-B",
                "-f",
                pom,
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
            ]
            command += [f"-DoutputDirectory={new}", f"-DexcludeTransitive={str(not transitive).lower()}"]
            run(command, place.path("log") / f"maven-{name}.log", seconds=900)
            new.rename(folder)
    return folder


def jar(place: Place, coordinate: str, sha256: str) -> Path:
    """One jar alone, checked against its sha256."""
    _, artifact, version = coordinate.split(":")
    path = jars(place, f"{artifact}-{version}", coordinate, transitive=False) / f"{artifact}-{version}.jar"
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != sha256:
        raise ServiceError(f"{coordinate} has sha256 {found}, not {sha256}")
    return path
