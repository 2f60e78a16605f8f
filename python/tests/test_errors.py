"""Wrong arrays, wrong calls, dead ranks: each is an exception that says what and where."""

from __future__ import annotations

import gc
import pathlib
import pickle
import re
import shutil
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from ranks import finish, on_threads, start_processes

import tutti
from tutti import _launch


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


def test_numbers_are_not_cut(comm: tutti.Communicator) -> None:
    x, far = np.ones(1, "f4"), 2**32
    zero: Any = np.int64(0)
    for use in (
        lambda: comm.broadcast(x, root=far),
        lambda: comm.all_reduce(x, op=far),
        lambda: comm.reduce_scatter_v(x, x, [1], op=far),
        lambda: comm.all_gather_v(np.ones(1, "c16"), np.ones(1, "c16"), [2**63]),
        lambda: comm.split(far),
        lambda: comm.split(0, key=far),
        lambda: comm.shrink([far]),
        lambda: comm.grow(far + 2),
        lambda: comm.premul_sum(300, "int8"),
        lambda: tutti.Communicator.from_id(tutti.unique_id(), far, 1),
        lambda: tutti.Communicator.from_id(tutti.unique_id(), 0, 1, minCTAs=far + 1),
        lambda: tutti.Communicator.threads(far + 1),
        lambda: tutti.alloc(2**64 + 1),
    ):
        with pytest.raises(OverflowError):
            use()
    with comm.window(np.int64(64)) as window:
        with pytest.raises(OverflowError, match="put: peer 4294967296 is no number of 32 bits"):
            window.put(window.memory[:1], far)
        with pytest.raises(OverflowError):
            window.wait(0, far + 1)
        for offset in (-1, 2**64):
            with pytest.raises(ValueError, match=f"offset {offset}"):
                window.put(window.memory[:1], 0, offset)
        window.put(window.memory[:1], zero, zero)
        window.wait(zero)


def test_arguments_of_another_kind(comm: tutti.Communicator) -> None:
    with pytest.raises(TypeError, match="commName=5: must be a text"):
        tutti.Communicator.from_id(tutti.unique_id(), 0, 1, commName=5)
    with pytest.raises(ValueError, match="join: an id has 128 bytes, this one 129"):
        tutti.Communicator.join(tutti.unique_id() + b"x", 1, 2)
    with pytest.raises(RuntimeError, match="Request"):
        tutti.Request().wait()
    with pytest.raises(TypeError, match="user_op: 5 cannot be called"):
        comm.user_op(5)  # type: ignore[arg-type]
    with comm.window(8) as window:
        window.close()
        with pytest.raises(RuntimeError, match="put: the window is closed"):
            window.put(window.memory, 0)
    released = memoryview(bytearray(4))
    released.release()
    with pytest.raises(ValueError, match="released"):
        comm.all_reduce(released)


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_not_closed_is_aborted_where_warnings_are_errors() -> None:
    lost, other = tutti.Communicator.threads(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del lost
        gc.collect()
    other.timeout = 10
    with pytest.raises(tutti.TuttiRemoteError, match="rank 0"):
        other.barrier()
        other.barrier()
    other.abort()


def test_end_of_a_program_with_operations_under_way() -> None:
    code = """
        import numpy as np, tutti
        comms = tutti.Communicator.threads(2)
        arrays = [np.frombuffer(tutti.alloc(64 << 20), "f4") for _ in comms]
        with tutti.group():
            requests = [comm.start.all_reduce(x) for comm, x in zip(comms, arrays)]
    """
    ends = finish(start_processes(1, code))
    assert ends[0][0] == 0, ends


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
        open(os.environ["INTERRUPTED"], "w").close()
    else:
        while not os.path.exists(os.environ["INTERRUPTED"]):
            time.sleep(0.01)
        comm.all_reduce(x)
    y = comm.all_reduce(np.ones(2))  # the process and the communicator go on
    assert (y == 2).all() and (x == 4).all(), (x, y)
    comm.close()
    print("ok")
"""


def test_ctrl_c_while_waiting(tmp_path: pathlib.Path) -> None:
    ends = finish(start_processes(2, INTERRUPTED, INTERRUPTED=str(tmp_path / "interrupted")))
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


def test_incomplete_package(tmp_path: pathlib.Path) -> None:
    package = pathlib.Path(tutti.__file__).parent
    (tmp_path / "tutti").mkdir()
    for file in package.glob("*.py"):
        shutil.copy(file, tmp_path / "tutti")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tutti"
    ends = finish(start_processes(1, code))
    assert ends[0][0] != 0 and "no compiled extension" in ends[0][2] and "pip install python/" in ends[0][2]
    shutil.copy(package / "_fast.abi3.so", tmp_path / "tutti")
    ends = finish(start_processes(1, code))
    assert ends[0][0] != 0 and "the package has no library. Install the wheel" in ends[0][2]


def test_missing_variables() -> None:
    for variables, text in [
        ({"RANK": "0"}, "torchrun has set its rank, but not WORLD_SIZE: set it"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE='two' is no number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is no rank of 2 (WORLD_SIZE)"),
        ({"PMI_RANK": "0"}, "MPICH has set its rank, but not PMI_SIZE"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": ""},
            "MASTER_PORT='' is no number",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "65536"},
            "MASTER_PORT=65536 is no port",
        ),
    ]:
        with pytest.raises(RuntimeError, match=re.escape(text)):
            _launch.find_job(variables)
    job = _launch.find_job({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"})
    with pytest.raises(RuntimeError, match=r"no place to meet: set MASTER_ADDR .* and MASTER_PORT"):
        _launch.exchange_id(job, 1)
