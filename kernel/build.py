"""Compiles the Java kernel against the jars inside the installed pyspark: `python kernel/build.py [--force | --check]`.

The jar is reproducible: the same sources and the same pyspark give the same bytes (for one version of javac). Its
manifest records what it was built from, so that a jar that is up to date is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

KERNEL = Path(__file__).resolve().parent
JAR = KERNEL.parent / "src" / "penstock" / "spark" / "penstock-kernel.jar"

# The oldest Java that Spark 4 runs on.
RELEASE = 17

INSTALL_JDK = f"""Penstock's kernel is compiled with javac, of Java {RELEASE} or newer, and {{problem}}.
Install a JDK, or point JAVA_HOME at one:
  Debian, Ubuntu   apt install openjdk-17-jdk-headless
  Fedora, RHEL     dnf install java-21-openjdk-devel
  Alpine           apk add openjdk17-jdk
  macOS            brew install openjdk@17
  Windows          winget install EclipseAdoptium.Temurin.17.JDK"""


class BuildError(Exception):
    """The kernel cannot be built; the message says what to do."""


def build(sources: Path = KERNEL / "src", jar: Path = JAR, *, force: bool = False) -> Path:
    """Makes `jar` from everything under `sources` unless it is up to date, and returns its path.

    `.java` files are compiled; any other file goes into the jar under its own relative name.
    """
    files = sorted(p for p in sources.rglob("*") if p.is_file())
    java = [p for p in files if p.suffix == ".java"]
    if not java:
        raise BuildError(f"There are no Java sources in {sources}.")
    spark_version, spark_jars = find_pyspark()
    fingerprint = _fingerprint(sources, files, spark_version)
    if not force and _recorded_fingerprint(jar) == fingerprint:
        return jar

    javac = find_javac()
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder, "classes")
        # An argument file: the lists of jars and sources may be longer than a command line can be.
        arguments = Path(folder, "arguments")
        options = ["--release", str(RELEASE), "-encoding", "UTF-8", "-proc:none", "-XDsuppressNotes", "-g"]
        options += ["-d", str(classes)]
        # Named one by one: javac does not expand a wildcard that it reads from an argument file.
        options += ["-classpath", os.pathsep.join(sorted(map(str, spark_jars.glob("*.jar")))), *map(str, java)]
        arguments.write_text("\n".join(_quote(o) for o in options), encoding="utf-8")
        done = subprocess.run([javac, f"@{arguments}"], check=False)
        if done.returncode != 0:
            raise BuildError("javac refused the kernel's sources; its messages are above.")
        entries = {p.relative_to(classes).as_posix(): p.read_bytes() for p in classes.rglob("*") if p.is_file()}

    entries |= {p.relative_to(sources).as_posix(): p.read_bytes() for p in files if p.suffix != ".java"}
    manifest = (
        "Manifest-Version: 1.0\r\n"
        f"Penstock-Spark-Version: {spark_version}\r\n"
        f"Penstock-Fingerprint: {fingerprint}\r\n\r\n"
    )
    _write_jar(jar, {"META-INF/MANIFEST.MF": manifest.encode(), **dict(sorted(entries.items()))})
    return jar


def find_pyspark() -> tuple[str, Path]:
    """The version of the installed pyspark and its folder of jars, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError(
            "The kernel is compiled against pyspark, which is not installed: pip install 'pyspark>=4.2.1,<4.4'."
        )
    jars = Path(spec.origin).parent / "jars"
    if not jars.is_dir():
        raise BuildError(f"The installed pyspark has no jars in {jars}: install `pyspark`, not `pyspark-client`.")
    return importlib.metadata.version("pyspark"), jars


def find_javac() -> str:
    """The javac of JAVA_HOME, or else of PATH; refused if it is too old."""
    home = os.environ.get("JAVA_HOME")
    javac = (home and shutil.which("javac", path=str(Path(home, "bin")))) or shutil.which("javac")
    if not javac:
        raise BuildError(INSTALL_JDK.format(problem="there is none on this machine"))
    done = subprocess.run([javac, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r"javac (\d+)", done.stdout + done.stderr)
    if done.returncode != 0 or version is None:
        raise BuildError(INSTALL_JDK.format(problem=f"{javac} does not run"))
    if int(version[1]) < RELEASE:
        raise BuildError(INSTALL_JDK.format(problem=f"{javac} is of Java {version[1]}"))
    return javac


def _quote(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _fingerprint(sources: Path, files: list[Path], spark_version: str) -> str:
    digest = hashlib.sha256(f"{spark_version}\0{RELEASE}\0".encode())
    # How the jar is made counts as well.
    digest.update(Path(__file__).read_bytes())
    for file in files:
        digest.update(f"\0{file.relative_to(sources).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    # A manifest line holds at most 72 bytes.
    return digest.hexdigest()[:40]


def _recorded_fingerprint(jar: Path) -> str | None:
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    found = re.search(r"^Penstock-Fingerprint: (\w+)", manifest, re.MULTILINE)
    return found[1] if found else None


def _write_jar(jar: Path, entries: dict[str, bytes]) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and moved into place, since a running JVM may have the old one open.
    handle, name = tempfile.mkstemp(dir=jar.parent, prefix=f".{jar.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in entries.items():
                entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
        Path(name).chmod(0o644)
        Path(name).replace(jar)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the kernel jar unless it is up to date.")
    parser.add_argument("--force", action="store_true", help="build it even if it is up to date")
    parser.add_argument("--check", action="store_true", help="only see whether there is a javac that will do")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            find_javac()
        else:
            build(force=arguments.force)
    except BuildError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
