"""Wrong arrays, wrong calls, dead ranks: each is an exception that says what and where."""

from __future__ import annotations

import gc
import pickle
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from ranks import finish, on_threads, start_processes

import tutti


@pytest.fixture()
def comm() -> Any:
    made = tutti.Communicator.threads(1)[0]
    yield made
    made.close()


def test_layout_and_access(comm: tutti.Communicator) -> None:
    with pytest.raises(BufferError, match=r"send: <class 'numpy.ndarray'> is not contiguous"):
        comm.all_reduce(np.ones((4, 4))[:, 1])
    with pytest.raises(BufferError, match="not contiguous"):
        comm.all_reduce(np.asfortranarray(np.ones((4, 4))))
    with pytest.raises(BufferError, match=r"send: .*read-only"):
        comm.all_reduce(b"abcd")
    fixed = np.ones(4)
    fixed.flags.writeable = False
    with pytest.raises(BufferError, match=r"recv: .*read-only"):
        comm.all_reduce(np.ones(4), fixed)
    with pytest.raises(TypeError, match="is no array"):
        comm.all_reduce([1.0, 2.0])
    with pytest.raises(TypeError, match="in place of None"):
        comm.all_reduce(None)
    with pytest.raises(TypeError, match="Python objects"):
        comm.broadcast(np.array([{}]))


def test_types_and_counts(comm: tutti.Communicator) -> None:
    with pytest.raises(TypeError, match=r"8 bytes \(float64\), recv of 4 bytes \(float32\)"):
        comm.all_reduce(np.ones(4), np.ones(4, "f4"))
    with pytest.raises(TypeError, match="moved, but not reduced"):
        comm.all_reduce(np.ones(4, "i2"))
    with pytest.raises(ValueError, match="send has 4 elements, so recv needs 4, and has 3"):
        comm.all_reduce(np.ones(4), np.ones(3))
    two = tutti.Communicator.threads(2)
    with pytest.raises(ValueError, match="3 elements, which are not divisible by the number of ranks, 2"):
        two[0].reduce_scatter(np.ones(3), np.ones(1))
    for one in two:
        one.close()


def test_codes_of_the_library(comm: tutti.Communicator) -> None:
    with pytest.raises(tutti.TuttiArgumentError) as caught:
        comm.broadcast(np.ones(1), root=7)
    assert caught.value.code == 4 and caught.value.rank == 0 and "7" in caught.value.text
    assert issubclass(tutti.TuttiArgumentError, ValueError) and caught.value.operation == "broadcast"
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and type(again) is tutti.TuttiArgumentError
    with pytest.raises(TypeError, match="no option 'colour'"):
        comm.split(0, colour=1)
    with pytest.raises(ValueError, match="128 bytes, this one 3"):
        tutti.Communicator.from_id(b"abc", 0, 1)


def test_mismatch_is_named() -> None:
    def work(comm: tutti.Communicator) -> str:
        with pytest.raises(tutti.TuttiUsageError) as caught:
            comm.all_reduce(np.ones(4 + comm.rank, "f4"))
        return str(caught.value.text)

    for text in on_threads(2, work):
        assert "4" in text and "5" in text


def test_closed(comm: tutti.Communicator) -> None:
    other = tutti.Communicator.threads(1)[0]
    other.close()
    other.close()
    other.abort()
    assert other.closed and "closed" in repr(other)
    for use in (lambda: other.all_reduce(np.ones(1)), lambda: other.split(0), lambda: other.check()):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_not_closed_is_a_warning() -> None:
    lost = tutti.Communicator.threads(1)[0]
    with pytest.warns(ResourceWarning, match="was not closed"):
        del lost
        gc.collect()


def test_time_limit_leaves_the_operation() -> None:
    comms = tutti.Communicator.threads(2)
    comms[0].timeout = 0.05
    x = np.ones(3)
    with pytest.raises(tutti.TuttiTimeout) as caught:
        comms[0].all_reduce(x)
    assert issubclass(tutti.TuttiTimeout, TimeoutError) and caught.value.rank == 0
    comms[0].timeout = None
    comms[1].all_reduce(np.ones(3))  # the other one comes: the operation completes
    with tutti.group():
        comms[0].barrier()
        comms[1].barrier()
    assert (x == 2).all()
    for one in comms:
        one.close()


def test_abort_from_another_thread() -> None:
    comms = tutti.Communicator.threads(2)
    timer = threading.Timer(0.1, comms[0].abort)
    timer.start()
    with pytest.raises(tutti.TuttiError):
        comms[0].all_reduce(np.ones(3))
    timer.join()
    with pytest.raises(tutti.TuttiRemoteError, match="rank 0"):
        for _ in range(2):  # what rank 0 had sent before may still complete the first
            comms[1].all_reduce(np.ones(3))
    comms[1].abort()


INTERRUPTED = """
    import os, signal, sys, threading, time
    import numpy as np, tutti
    comm = tutti.Communicator.from_env(timeout=30)
    x = np.ones(3)
    comm.all_reduce(x)
    if comm.rank == 0:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            comm.all_reduce(x)
            sys.exit("not interrupted")
        except KeyboardInterrupt:
            late = time.monotonic() - start - 0.3
        assert late < 0.5, late
    else:
        time.sleep(1.2)
        comm.all_reduce(x)
    y = comm.all_reduce(np.ones(2))  # the process and the communicator go on
    assert (y == 2).all() and (x == 4).all(), (x, y)
    comm.close()
    print("ok")
"""


def test_ctrl_c_while_waiting() -> None:
    ends = finish(start_processes(2, INTERRUPTED))
    assert [(status, out) for status, out, _ in ends] == [(0, "ok\n")] * 2, ends


def test_ctrl_c_while_creating() -> None:
    code = """
        import os, signal, threading, time
        import tutti
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            tutti.Communicator.from_id(tutti.unique_id(), 0, 2)
        except KeyboardInterrupt:
            assert time.monotonic() - start < 0.8
            tutti.Communicator.from_id(tutti.unique_id(), 0, 1).close()
            print("ok")
    """
    ends = finish(start_processes(1, code))
    assert ends[0][:2] == (0, "ok\n"), ends


def test_creation_has_a_limit() -> None:
    start = time.monotonic()
    with pytest.raises(tutti.TuttiTimeout, match="have come within"):
        tutti.Communicator.from_id(tutti.unique_id(), 0, 2, timeout=0.2)
    assert time.monotonic() - start < 2


def test_a_dead_rank_is_named() -> None:
    code = """
        import os, time
        import numpy as np, tutti
        comm = tutti.Communicator.from_env(timeout=30)
        x = np.ones(3)
        comm.all_reduce(x)
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        start = time.monotonic()
        try:
            comm.all_reduce(x)
        except tutti.TuttiRemoteError as error:
            print(error.code, "rank 1" in error.text, time.monotonic() - start < 2)
        small = comm.shrink([1], after_failure=True)
        comm.abort()
        print(small.size, small.all_reduce(np.full(1, small.rank + 1.0))[0])
        small.close()
    """
    ends = finish(start_processes(3, code))
    assert ends[1][0] == -signal.SIGKILL
    for rank in (0, 2):
        assert ends[rank][:2] == (0, "6 True True\n2 3.0\n"), ends[rank]


def test_missing_library() -> None:
    ends = finish(start_processes(1, "import tutti", TUTTI_LIBRARY="/nowhere/libnccl.so.2"))
    assert ends[0][0] != 0 and "TUTTI_LIBRARY names no file" in ends[0][2]
    ends = finish(start_processes(1, "import tutti", TUTTI_LIBRARY="/proc/self/exe"))
    assert ends[0][0] != 0 and "ImportError" in ends[0][2]
