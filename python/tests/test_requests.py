"""Operations that are started and not waited for; groups; asyncio; what a request keeps."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from ranks import on_threads

import tutti
from tutti import _library


def test_wait_and_test() -> None:
    def work(comm: tutti.Communicator) -> None:
        x = np.full(1000, comm.rank + 1.0)
        requests = [comm.start.all_reduce(x) for _ in range(5)]
        assert requests[-1].wait() is x
        assert all(request.test() for request in requests)
        assert (x == 3 * 2**4).all()
        y = np.zeros(4)
        assert comm.start.all_gather(np.full(2, comm.rank), np.zeros(4, int)).wait(30).tolist() == [0, 0, 1, 1]
        request = comm.start.broadcast(y)
        while not request.test():
            pass
        assert request.wait(0) is y

    on_threads(2, work)


def test_time_limit_of_a_request() -> None:
    a, b = tutti.Communicator.threads(2)
    x = np.ones(2)
    request = a.start.all_reduce(x)
    assert not request.test()
    with pytest.raises(tutti.TuttiTimeout):
        request.wait(0.02)
    b.all_reduce(np.ones(2))
    assert request.wait(30) is x and (x == 2).all()
    a.close()
    b.close()


def test_dropped_requests_keep_their_arrays() -> None:
    class Watched(np.ndarray[Any, Any]):
        pass

    a, b = tutti.Communicator.threads(2)
    x = np.ones(3).view(Watched)
    alive = weakref.ref(x)
    a.start.all_reduce(x)
    del x
    gc.collect()
    assert alive() is not None
    b.all_reduce(np.ones(3))
    a.barrier_request = a.start.all_reduce(np.ones(1))  # type: ignore[attr-defined]
    b.all_reduce(np.ones(1))
    a.barrier_request.wait(30)  # type: ignore[attr-defined]
    a.start.all_reduce(np.ones(1))  # a new request frees what is complete
    b.all_reduce(np.ones(1))
    gc.collect()
    assert alive() is None
    a.close()
    b.close()


def test_results_after_close() -> None:
    a, b = tutti.Communicator.threads(2)
    x = [np.full(3, 1.0), np.full(3, 2.0)]
    requests = [a.start.all_reduce(x[0]), b.start.all_reduce(x[1])]
    a.close()
    b.close()
    a, b = tutti.Communicator.threads(2)  # may have the same place in memory
    b.abort()
    with pytest.raises(tutti.TuttiRemoteError):
        a.all_reduce(np.ones(1))
    assert requests[0].wait() is x[0] and (x[0] == 3).all()
    assert requests[1].test() and requests[1].wait(0) is x[1] and (x[1] == 3).all()
    a.abort()


def test_errors_after_abort() -> None:
    a, b = tutti.Communicator.threads(2)
    before = a.start.all_reduce(np.ones(1))
    b.all_reduce(np.ones(1))
    assert before.wait(30) == [2]
    request = a.start.all_reduce(np.ones(1))
    a.abort()
    for call in (request.wait, request.test, request.wait):  # every time, not only the first
        with pytest.raises(
            tutti.TuttiError, match=r"all_reduce on rank 0: .*was aborted while the operation"
        ) as caught:
            call()
        assert caught.value.rank == 0 and caught.value.operation == "all_reduce"
    assert before.wait() == [2]
    b.abort()


def test_abort_of_an_idle_communicator_ends_nothing() -> None:
    a, b = tutti.Communicator.threads(2)
    requests = [a.start.all_reduce(np.ones(1)), b.start.all_reduce(np.ones(1))]
    a.barrier_request = a.start.broadcast(np.ones(1))  # type: ignore[attr-defined]
    b.broadcast(np.ones(1))
    a.barrier_request.wait(30)  # type: ignore[attr-defined]
    a.abort()
    b.abort()
    assert [request.wait() for request in requests] == [[2], [2]]


def test_abort_while_another_thread_waits() -> None:
    a, b = tutti.Communicator.threads(2)
    request = a.start.all_reduce(np.ones(1))
    threading.Timer(0.1, a.abort).start()
    with pytest.raises(tutti.TuttiError, match="abort"):
        request.wait(30)
    b.abort()


def test_revoke() -> None:
    a, b = tutti.Communicator.threads(2)
    request = a.start.all_reduce(np.ones(1))
    a.revoke()
    with pytest.raises(tutti.TuttiUsageError, match=r"all_reduce on rank 0: .*was revoked while the operation"):
        request.wait(30)
    a.close()  # no failure: the program has revoked it
    with pytest.raises(tutti.TuttiUsageError, match="was revoked"):
        request.wait()
    b.abort()


def test_a_revocation_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tutti.Communicator.threads(2)
    request = a.start.all_reduce(np.ones(1))

    def refuse(*_: object) -> None:
        raise tutti.TuttiUsageError(5, 0, "refused", "revoke")

    with monkeypatch.context() as patch:
        patch.setattr(_library, "call", refuse)
        with pytest.raises(tutti.TuttiUsageError, match="refused"):
            a.revoke()
    b.all_reduce(np.ones(1))
    assert request.wait(30) == [2]
    a.close()
    b.close()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_error_that_is_cut_within_a_character(before: int) -> None:
    a, b = tutti.Communicator.threads(2)
    request = a.start.all_reduce(np.ones(1))
    assert a._ends(5, "x" * before + "\N{EURO SIGN}" * 1000)
    a.abort()
    with pytest.raises(tutti.TuttiUsageError, match="\N{EURO SIGN}" * 300):
        request.wait(30)
    b.abort()


def test_the_error_outlives_the_communicator() -> None:
    a, b = tutti.Communicator.threads(2)
    b.abort()
    with pytest.raises(tutti.TuttiRemoteError) as first:
        request = a.start.all_reduce(np.ones(1))
        request.wait(30)
    a.abort()
    with pytest.raises(tutti.TuttiRemoteError) as second:
        request.wait()
    assert second.value.text == first.value.text


def test_resize_is_refused_while_under_way() -> None:
    a, b = tutti.Communicator.threads(2)
    x = bytearray(4)
    request = a.start.all_reduce(x)
    with pytest.raises(BufferError):
        x.extend(b"more")
    b.all_reduce(bytearray(4))
    request.wait(30)
    x.extend(b"more")
    a.close()
    b.close()


def test_asyncio() -> None:
    async def rank(comm: tutti.Communicator) -> float:
        await asyncio.sleep(0.01 * comm.rank)
        x = np.full(4, comm.rank + 1.0)
        got = await comm.start.all_reduce(x)
        assert got is x
        return float(got[0])

    async def job(comms: list[tutti.Communicator]) -> list[float]:
        return await asyncio.wait_for(asyncio.gather(*map(rank, comms)), 30)

    comms = tutti.Communicator.threads(4)
    assert asyncio.run(job(comms)) == [10.0] * 4
    for comm in comms:
        comm.close()


def test_groups() -> None:
    comms = tutti.Communicator.threads(3)
    x = [np.full(2, comm.rank + 1.0) for comm in comms]
    with tutti.group(), tutti.group():
        started = [comm.start.all_reduce(part) for comm, part in zip(comms, x, strict=True)]
        with pytest.raises(RuntimeError, match="group has not ended"):
            started[0].test()
    assert [request.wait(30)[0] for request in started] == [6, 6, 6]
    with pytest.raises(ZeroDivisionError), tutti.group():
        for comm, part in zip(comms, x, strict=True):
            comm.all_reduce(part)
        raise ZeroDivisionError
    with tutti.group():
        for comm in comms:
            comm.barrier()
    assert [part[0] for part in x] == [18, 18, 18]  # what the group had queued has run
    for comm in comms:
        comm.close()


def test_group_of_a_wrong_call_reports_it() -> None:
    comm = tutti.Communicator.threads(1)[0]
    with pytest.raises(tutti.TuttiArgumentError), tutti.group():
        comm.broadcast(np.ones(1), root=3)
    assert comm.all_reduce(np.ones(1))[0] == 1
    comm.close()


def test_other_threads_run_while_one_waits() -> None:
    a, b = tutti.Communicator.threads(2)
    done = threading.Event()

    def other() -> None:
        done.wait(30)
        b.barrier()

    thread = threading.Thread(target=other)
    thread.start()
    threading.Timer(0.05, done.set).start()
    a.barrier()  # with the GIL held, the other thread would never come
    thread.join()
    a.close()
    b.close()


def test_many_calls_leak_nothing() -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    comm = tutti.Communicator.threads(1)[0]
    x, y = np.ones(16), np.ones(16)

    def calls(count: int) -> None:
        for _ in range(count):
            comm.all_reduce(x, y)
            comm.start.all_reduce(x, y).wait()
            with pytest.raises(TypeError):
                comm.all_reduce(None)

    calls(2000)
    before = resident()
    calls(20000)
    assert resident() - before < 1 << 20
    comm.close()
