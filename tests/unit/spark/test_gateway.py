"""The connection to the JVM, with a socket and a child process in its place."""

from __future__ import annotations

import inspect
import io
import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.clientserver import JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty
from py4j.protocol import Py4JNetworkError
from pyspark.java_gateway import launch_gateway

from penstock.errors import PenstockError
from penstock.spark.gateway import IMPORTS, _Client, _escaped, _Prompt
from penstock.spark.process import JvmProcess
from penstock.spark.scratch import Scratch


class Server:
    """Answers each connection with `answers`, one for each line that comes in; None closes it."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = [*answers]
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._answers:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    self.heard.append(line)
                    answer = self._answers.pop(0) if self._answers else None
                    if answer is None:
                        break
                    connection.sendall(answer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JvmProcess]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Scratch("test")
    process = JvmProcess(["/bin/sleep", "600"], scratch, dict(os.environ))
    yield process
    process.stop(0)
    scratch.remove()


def client_of(server: Server, process: JvmProcess) -> _Client:
    return _Client(
        JavaParameters(port=server.port),
        PythonParameters(port=0, eager_load=False),
        gateway_property=GatewayProperty(False, {}),
        process=process,
    )


def test_pyspark_finds_the_names_that_it_imports_itself() -> None:
    assert tuple(re.findall(r'java_import\(gateway\.jvm, "([^"]+)"\)', inspect.getsource(launch_gateway))) == IMPORTS


def test_a_call_is_answered(process: JvmProcess) -> None:
    server = Server(b"!yv\n", b"!yi5\n")
    client = client_of(server, process)
    assert client.send_command("one\n") == "yv"
    assert client.send_command("two\n") == "yi5"
    assert server.heard == [b"one\n", b"two\n"]
    client.close()
    server.close()


def test_a_connection_that_was_closed_is_made_again_once(process: JvmProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.process._VERDICT_S", 0.1)  # The process lives: nobody need wait for its end.
    server = Server(b"!yv\n", None, b"!yi5\n", None, None)
    client = client_of(server, process)
    client.send_command("one\n")
    assert client.send_command("two\n") == "yi5"
    with pytest.raises(Py4JNetworkError):
        client.send_command("three\n")
    server.close()


def test_a_call_under_way_ends_with_the_process(process: JvmProcess) -> None:
    server = Server(b"!yv\n", None)
    client = client_of(server, process)
    client.send_command("one\n")
    threading.Timer(0.3, process.stop, (0,)).start()
    with pytest.raises(PenstockError) as raised:
        client.send_command("two\n")
    assert raised.value.code == "PSK-7005"
    server.close()


def test_nothing_is_sent_to_a_process_that_has_ended(process: JvmProcess) -> None:
    server = Server(b"!yv\n")
    process.stop(0)
    with pytest.raises(PenstockError) as raised:
        client_of(server, process).send_command("one\n")
    assert raised.value.code == "PSK-7005"
    assert server.heard == []
    server.close()


@pytest.mark.parametrize("struck", [KeyboardInterrupt, SystemExit])
def test_a_call_that_is_struck_takes_its_connection_with_it(
    process: JvmProcess, monkeypatch: pytest.MonkeyPatch, struck: type[BaseException]
) -> None:
    server = Server(b"!yv\n", b"!yi1\n", b"!yi2\n")
    client = client_of(server, process)
    client.send_command("one\n")
    connection = client.get_thread_connection()
    read = connection.stream

    class Struck:
        """Ctrl-C comes when the command is sent and its answer is not read."""

        def readline(self) -> bytes:
            raise struck

        def close(self) -> None:
            read.close()

    connection.stream = Struck()
    with pytest.raises(struck):
        client.send_command("two\n")
    assert connection.socket is None
    # On a new connection, and so not the answer to the call before.
    assert client.send_command("three\n") == "yi2"
    client.close()
    server.close()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", "plain"),
        ("a=b:c", "a\\=b\\:c"),
        ("\\d{2}", "\\\\d{2}"),
        (" two  words ", "\\ two  words "),
        ("two\nlines", "two\\nlines"),
        ("größe 😀", "gr\\u00f6\\u00dfe \\ud83d\\ude00"),
    ],
)
def test_settings_are_written_as_java_reads_them(text: str, written: str) -> None:
    assert _escaped(text) == written


def test_replies_are_read_whole_and_the_end_of_a_connection_is_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as ours:
            theirs, _ = server.accept()
            reader = io.BufferedReader(_Prompt(ours, ours.makefile("rb", 0)), 1 << 16)
            theirs.sendall(b"x" * 100_000)
            theirs.sendall(b"\nshort\n")
            assert (len(reader.readline()), reader.readline()) == (100_001, b"short\n")
            theirs.close()
            assert reader.readline() == b""
            reader.close()
            assert reader.closed
        assert ours.fileno() == -1
