"""What the program can ask of operations: a hook at their end, how long they took, and would take."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, run
from torch.distributed.distributed_c10d import _coalescing_manager, _time_estimator

CPU = torch.device("cpu")


def _group() -> Any:
    return dist.distributed_c10d._get_default_group()


def _tell(rank: int) -> None:
    """Let rank 1 wait until rank 0 is here, without the group."""
    store = _group().get_group_store()
    store.set("here", "0") if rank == 0 else store.wait(["here"])


def _hook(rank: int, size: int, path: str) -> None:
    seen: list[Any] = []
    threads = set()

    def hook(info: Any) -> None:
        seen.append(info)
        threads.add(threading.get_ident())
        if len(seen) == 2:
            raise ValueError("of the test")  # does not end the calls

    with group(rank, size, path):
        dist.all_reduce(torch.ones(3))  # before the hook: not told
        assert not _group()._has_hooks()
        _group()._register_on_completion_hook(hook)
        assert _group()._has_hooks()
        with pytest.raises(RuntimeError, match="has a completion hook already"):
            _group()._register_on_completion_hook(hook)
        dist.all_reduce(torch.ones(3))
        dist.broadcast(torch.ones(1 << 16), 0, async_op=True)  # nobody waits
        with _coalescing_manager():
            dist.all_reduce(torch.ones(3))
            dist.all_reduce(torch.ones(4))
        message = dist.isend(torch.ones(2), 1) if rank == 0 else dist.irecv(torch.ones(2), 0)
        assert message is not None
        message.wait()
        dist.all_reduce(torch.ones(5, 2).to_sparse())
        _group()._wait_for_pending_works()
        kinds = ["ALLREDUCE", "BROADCAST", "ALLREDUCE_COALESCED", "RECV" if rank else "SEND", "_ALLREDUCE_SPARSE"]
        assert sorted(info.op_type.name for info in seen) == sorted(kinds)
        assert threads and threading.get_ident() not in threads
        for info in seen:
            assert info.time_started <= info.time_finished
            assert info.active_duration > datetime.timedelta(0) or info.op_type.name == kinds[3]
        assert sorted(info.seq for info in seen if info.op_type.name != kinds[3]) == [2, 3, 5, 8]


def test_hook() -> None:
    run(2, _hook)


def _pending(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        seen: list[Any] = []
        _group()._register_on_completion_hook(seen.append)
        dist.barrier()
        if rank == 0:
            _group()._get_backend(CPU).set_timeout(datetime.timedelta(milliseconds=300))
            work = dist.irecv(torch.ones(2), 1)
            with pytest.raises(RuntimeError, match="1 operations have not ended"):
                _group()._wait_for_pending_works()
            _group()._get_backend(CPU).set_timeout(datetime.timedelta(seconds=60))
            assert work is not None and len(seen) == 1
            _tell(rank)
        else:
            _tell(rank)
            dist.send(torch.ones(2), 0)
    assert len(seen) == 2  # destroy_process_group has waited


def test_pending() -> None:
    run(2, _pending)


def _duration(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        before = dist.all_reduce(torch.ones(3), async_op=True)
        before.wait()
        with pytest.raises(RuntimeError, match="must be called before the operation"):
            before._get_duration()
        _group()._enable_collectives_timing()
        if rank == 1:
            _tell(rank)
        work = dist.all_reduce(torch.ones(3), async_op=True)
        if rank == 0:
            with pytest.raises(RuntimeError, match="it has not completed"):
                work._get_duration()
            time.sleep(0.1)
            _tell(rank)
        work.wait()
        assert (100 if rank == 0 else 0) < work._get_duration() < 60000


def test_duration() -> None:
    run(2, _duration)


def _looks(rank: int, size: int, path: str) -> None:
    """A thread that holds Python's lock asks for the end, while another one ends the operation and then needs it."""
    with group(rank, size, path):
        for _ in range(3):
            called = threading.Event()
            work = dist.all_reduce(torch.ones(3000, 3000).t(), async_op=True)  # copied at its end
            work.get_future().add_done_callback(lambda _, event=called: event.set())
            while not work.is_completed():
                pass
            assert called.wait(60)


def test_looks() -> None:
    run(2, _looks)


def _estimated(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        assert _group()._get_backend(CPU).supports_time_estimate
        times = []
        for count in (1, 1 << 24):
            data = torch.ones(count)
            with _time_estimator() as estimate:
                dist.all_reduce(data)
                dist.all_reduce(data, dist._make_nccl_premul_sum(2.0))
                dist.all_gather_into_tensor(torch.zeros(count * size), data, async_op=True).wait()
                with pytest.raises(RuntimeError, match="no estimate of a message's time"):
                    dist.send(data, 1 - rank)
            assert data.eq(1).all()  # nothing has run
            times.append(estimate.estimated_time)
        assert 0 < times[0] < times[1], times
        pair = dist.new_group()
        with pytest.raises(ZeroDivisionError), _time_estimator():
            dist.all_reduce(data)
            total = torch.ones(3)
            dist.all_reduce(total, group=pair)  # another group: it runs
            assert total.eq(size).all()
            raise ZeroDivisionError
        with _time_estimator() as estimate:  # the program has left the last one, and begins anew
            dist.all_reduce(torch.ones(1))
        assert 0 < estimate.estimated_time < times[0], (estimate.estimated_time, times)
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.eq(size).all()


def test_estimated() -> None:
    run(2, _estimated)
