"""The kernel's index of the log, with a fake kernel: nothing is lost when a call fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.unit.runtime.storing import eventually

from penstock.errors import PenstockError, fail
from penstock.log import Entry
from penstock.spark import index as index_module
from penstock.spark.index import KernelIndex


class Kernel:
    """Takes the calls; those in `failing` are refused, one after the other, before or after they were carried out."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.head = 0
        self.calls = 0
        self.failing: list[tuple[BaseException, bool]] = []
        self.failed = threading.Event()

    def add(self, lines: str, head: int) -> None:
        self.calls += 1
        error, carried_out = self.failing.pop(0) if self.failing else (None, True)
        if carried_out:
            # As the kernel does it: entries that are known are skipped.
            known = self.lsns[-1] if self.lsns else 0
            self.lsns += [lsn for line in lines.splitlines() if (lsn := int(line.split("\t")[0])) > known]
            self.head = max(self.head, head)
        if error is not None:
            self.failed.set()
            raise error

    def forget(self, object_id: int) -> None: ...


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    index = SimpleNamespace(of=lambda database: made, drop=lambda database: None)
    monkeypatch.setattr(index_module, "jvm", lambda: SimpleNamespace(LogIndex=index))
    monkeypatch.setattr(index_module, "_AGAIN_S", 0.01)
    return made


@pytest.fixture
def index(kernel: Kernel) -> Iterator[KernelIndex]:
    made = KernelIndex("d")
    yield made
    made.close()


def entry(lsn: int) -> Entry:
    return Entry(lsn, 1, "/log/1.seg", 0, 240, 1, ((0, 240, 1),), None, lsn, -1, 0, 1, lsn)


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_call_that_fails_is_repeated_before_any_other(
    kernel: Kernel, index: KernelIndex, carried_out: bool, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.failing = [(ConnectionError("broken"), carried_out)] * 3
    index.add([entry(1), entry(2)], 2)
    assert kernel.failed.wait(10)
    index.add([entry(3)], 3)
    index._drain()
    eventually(lambda: kernel.head == 3, "the kernel knows the last commit")
    assert kernel.lsns == [1, 2, 3] and not kernel.failing
    assert "they are sent again" in caplog.text


def test_it_is_repeated_though_nothing_more_is_committed(kernel: Kernel, index: KernelIndex) -> None:
    kernel.failing = [(ValueError("odd"), False)]
    index.add([entry(1)], 1)
    eventually(lambda: kernel.head == 1, "the kernel knows the commit")
    assert kernel.lsns == [1] and kernel.calls == 2


def test_a_large_log_whose_first_part_fails_is_not_visible_by_half(
    kernel: Kernel, index: KernelIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_LINES", 2)
    kernel.failing = [(ValueError("odd"), False)]
    index.add([entry(n) for n in range(1, 8)], 7)
    eventually(lambda: kernel.head == 7, "the kernel knows the log")
    assert kernel.lsns == list(range(1, 8))


def test_nothing_is_repeated_for_a_jvm_that_has_exited(kernel: Kernel, index: KernelIndex) -> None:
    gone: PenstockError = fail("PSK-7005", "Spark's JVM has exited.")
    kernel.failing = [(gone, False)]
    index.add([entry(1)], 1)
    index._drain()
    assert (kernel.lsns, kernel.calls, len(index._unsent)) == ([], 1, 0)
