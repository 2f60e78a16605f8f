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
