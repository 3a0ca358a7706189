"""The connection to the JVM. A call to a dead JVM raises PSK-7005; no network error of Py4J leaves this module."""

from __future__ import annotations

import io
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, ClientServer, JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from py4j.protocol import EMPTY_RESPONSE, ERROR_ON_SEND, Py4JNetworkError, is_fatal_error
from pyspark.find_spark_home import _find_spark_home

from penstock.errors import fail
from penstock.spark.launch import Command, Launch
from penstock.spark.process import JvmProcess
from penstock.spark.scratch import Scratch

IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""The names that PySpark uses without packages."""

_PROPERTIES = "spark.properties"
_CONNECTION = "connection"

_START_S = 180.0
"""Enough for two JVMs that start one after the other, on a loaded machine with a cold disk."""

_LOOK_S = 0.02


class _Prompt(io.RawIOBase):
    """Reads from a connection, and sends TCP acknowledgements immediately.

    The JVM sends a reply of more than 8 KiB in pieces. Its kernel delays the last piece until the others are acknowledged, and ours would delay the acknowledgement by 40 ms.
    """

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        self._connection = connection
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if hasattr(socket, "TCP_QUICKACK"):
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Client(JavaClient):  # type: ignore[misc]
    """Sends commands to one JVM. Each thread has its own connection."""

    def __init__(self, *arguments: Any, process: JvmProcess, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._process = process

    def _create_new_connection(self) -> Any:
        connection = super()._create_new_connection()
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.stream = io.BufferedReader(_Prompt(connection.socket, connection.stream.detach()), 1 << 16)
        return connection

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        while True:
            end = self._process.end()
            if end is not None:
                raise end
            connection = None
            try:
                connection = self._get_connection()
                answer = connection.send_command(command)
            except (Py4JNetworkError, OSError) as error:
                if connection is not None:
                    connection.close()
                end = self._process.end_soon()
                if end is not None:
                    raise end from error
                if not (retry and connection is not None and self._unheard(error, connection)):
                    raise
                retry = False
            except BaseException:
                # Ctrl-C: the next call would take the unread reply for its own.
                if connection is not None:
                    connection.close()
                raise
            else:
                return self._answered(answer, connection, binary)

    def _unheard(self, error: Exception, connection: Any) -> bool:
        """Whether the JVM closed an idle connection before it received the command."""
        return connection.initiated_from_client and getattr(error, "when", None) in (ERROR_ON_SEND, EMPTY_RESPONSE)

    def _answered(self, answer: str, connection: Any, binary: bool) -> Any:
        if binary:
            return answer, self._create_connection_guard(connection)
        if is_fatal_error(answer):
            connection.close(False)
        else:
            self._give_back_connection(connection)
        return answer


class Gateway(ClientServer):  # type: ignore[misc]
    """PySpark's gateway to the JVM of `process`. Every connection authenticates with a token that only this process knows."""

    def __init__(self, process: JvmProcess, port: int, token: str) -> None:
        self.proc = process
        super().__init__(
            java_parameters=JavaParameters(port=port, auth_token=token, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        try:
            for name in IMPORTS:
                java_import(self.jvm, name)
        except BaseException:
            self.abandon()
            raise

    def _create_gateway_client(self) -> _Client:
        return _Client(
            self.java_parameters,
            self.python_parameters,
            finalizer_deque=self._create_finalizer_worker(),
            process=self.proc,
        )

    def abandon(self) -> None:
        """Cleans up this side after the JVM has exited: sockets, threads, and Python's references to Java objects."""
        client = self._gateway_client
        client.is_connected = False
        client.close()
        client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
        self.shutdown_callback_server()


def prepare_launch(conf: Mapping[str, str], scratch: Scratch, environment: Mapping[str, str], remember: bool) -> Launch:
    """The command that starts Spark's JVM. Settings are passed in a file that only this user can read, because some are secrets and anyone can list processes."""
    properties = scratch.path / _PROPERTIES
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{_escaped(k, True)}={_escaped(v)}\n" for k, v in conf.items()))
    home = environment.get("SPARK_HOME") or _find_spark_home()
    submit = Command(
        (
            str(Path(home, "bin", "spark-submit")),
            *("--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"),
        ),
        {
            **os.environ,
            **environment,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch.path / _CONNECTION),
        },
    )
    return Launch(submit, conf, scratch.path, remember)


def connect(process: JvmProcess, scratch: Scratch) -> Gateway:
    """Waits until the JVM listens, and connects to it."""
    connection = scratch.path / _CONNECTION
    deadline = time.monotonic() + _START_S
    while not connection.is_file():
        end = process.end()
        if end is not None:
            raise end
        if time.monotonic() > deadline:
            raise fail("PSK-0010", f"The JVM did not answer within {_START_S:.0f} s.")
        time.sleep(_LOOK_S)
    port, length = struct.unpack_from(">ii", told := connection.read_bytes())
    connection.unlink()
    return Gateway(process, port, told[8 : 8 + length].decode())


def _escaped(text: str, key: bool = False) -> str:
    """Escapes text for a Java properties file."""
    out = []
    for i, c in enumerate(text):
        if c in "\\=:#!" or (c == " " and (key or i == 0)):
            out.append("\\" + c)
        elif c == "\n":
            out.append("\\n")
        elif " " <= c <= "~":
            out.append(c)
        else:
            units = c.encode("utf-16-be")
            out += [f"\\u{units[j : j + 2].hex()}" for j in range(0, len(units), 2)]
    return "".join(out)
