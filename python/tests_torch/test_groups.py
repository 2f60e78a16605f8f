"""Groups: new, split, shrunk, aborted; coalescing; barriers with names; sequence numbers."""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, needs, run
from torch.distributed.distributed_c10d import _coalescing_manager

import tutti.torch

CPU = torch.device("cpu")


def _groups(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        pairs = [dist.new_group([0, 1]), dist.new_group([1, 2], use_local_synchronization=False)]
        for i, pair in enumerate(pairs):
            if rank in (i, i + 1):
                total = torch.ones(1)
                dist.all_reduce(total, group=pair)
                assert total == 2
                assert dist.get_backend(pair) == "tutti"
        backend = dist.distributed_c10d._get_default_group()._get_backend(CPU)
        assert backend.name() == "tutti" and backend.rank() == rank
        before = backend._get_sequence_number_for_group()
        dist.barrier()
        assert backend._get_sequence_number_for_group() == before + 1
        dist.destroy_process_group(pairs[0]) if rank < 2 else None
        record = tutti.torch.flight_recorder()
        assert record, "the flight recorder is empty"
        assert "verdict" in tutti.torch.diagnose()


def test_groups() -> None:
    run(3, _groups)


def _coalesced(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        tensors = [torch.full((n,), float(rank + n)) for n in (1, 5, 3000)]
        with _coalescing_manager(device=CPU):
            for tensor in tensors:
                dist.all_reduce(tensor)
        for n, tensor in zip((1, 5, 3000), tensors, strict=True):
            assert tensor.eq(sum(range(size)) + size * n).all()
        outs = [torch.zeros(size * n) for n in (2, 7)]
        with _coalescing_manager(device=CPU, async_ops=True) as manager:
            for n, out in zip((2, 7), outs, strict=True):
                dist.all_gather_into_tensor(out, torch.full((n,), float(rank)))
        manager.wait()
        for n, out in zip((2, 7), outs, strict=True):
            assert torch.equal(out, torch.arange(float(size)).repeat_interleave(n))
        mine = [torch.zeros(n) for n in (2, 7)]
        with _coalescing_manager(device=CPU):
            for n, out in zip((2, 7), mine, strict=True):
                dist.reduce_scatter_tensor(out, torch.arange(float(size)).repeat_interleave(n))
        assert all(out.eq(size * rank).all() for out in mine)


def test_coalesced() -> None:
    run(3, _coalesced)


def _coalescing_fails(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        ours = dist.distributed_c10d._get_default_group()
        ours._start_coalescing(CPU)
        with pytest.raises(RuntimeError, match="BAND"):
            ours.allreduce([torch.ones(1)], dist.ReduceOp.BAND)
        totals = [torch.ones(1), torch.ones(2)]
        ours._start_coalescing(CPU)  # the program has caught the error, and begins anew
        for total in totals:
            ours.allreduce([total])
        work = ours._end_coalescing(CPU)
        work.wait()
        assert all(total.eq(size).all() for total in totals) and len(work.result()) == 2
        with pytest.raises(RuntimeError, match="startCoalescing has not been called"):
            ours._end_coalescing(CPU)


def test_coalescing_fails() -> None:
    run(2, _coalescing_fails)


def _monitored(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for _ in range(3):
            tutti.torch.monitored_barrier()
        ms = 3000
        limit = datetime.timedelta(milliseconds=ms)
        if rank == 0:
            with pytest.raises(RuntimeError, match=f"Ranks 1, 3 failed to pass monitoredBarrier in {ms} ms"):
                tutti.torch.monitored_barrier(timeout=limit, wait_all_ranks=True)
        elif rank == 2:
            text = r"Rank 2 successfully reached monitoredBarrier, but received errors .* Ranks 1, 3 failed"
            with pytest.raises(RuntimeError, match=text):
                tutti.torch.monitored_barrier(timeout=limit * 20)
        dist.barrier()
        if rank == 0:  # no time at all
            with pytest.raises(RuntimeError, match=r"Rank 1 failed .* in 0 ms; Rank 0 timed out in monitoredBarrier"):
                tutti.torch.monitored_barrier(timeout=limit * 0)
        dist.barrier()


def test_monitored() -> None:
    run(4, _monitored)


def _started_anew(rank: int, size: int, path: str) -> None:
    limit = datetime.timedelta(seconds=60)
    for attempt in range(3):  # with one store, which has what the groups of before have left
        store = dist.FileStore(path, -1)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size, timeout=limit)
        first, last = torch.zeros(1, dtype=torch.double), torch.zeros(1, dtype=torch.double)
        dist.barrier()
        if rank == 0:
            time.sleep(0.4)
        first[0] = time.monotonic()
        tutti.torch.monitored_barrier()
        last[0] = time.monotonic()
        dist.all_reduce(first, op=dist.ReduceOp.MAX)
        assert last >= first, f"attempt {attempt}: rank {rank} has not waited for rank 0"
        dist.destroy_process_group()


def test_started_anew() -> None:
    run(3, _started_anew)


def _hang(rank: int, size: int, path: str) -> None:
    """Be the helper of PyTorch's wrapper, which finds a rank that does not call."""
    with group(rank, size, path):
        ours = dist.distributed_c10d._get_default_group()
        store = dist.PrefixStore("helper", ours.get_group_store())
        helper = tutti.torch._build.extension().create_backend(store, rank, size, 60, "helper", list(range(size)))
        wrapper = dist.distributed_c10d._ProcessGroupWrapper(ours._get_backend(CPU), helper)
        total = torch.ones(3)
        wrapper.allreduce([total]).wait()
        assert total.eq(size).all()
        helper._set_default_timeout(datetime.timedelta(seconds=2))
        dist.barrier()
        texts = {0: "Ranks 1 failed to pass monitoredBarrier in 2000 ms", 2: "Please check rank 0 logs for faulty rank"}
        if rank in texts:
            with pytest.raises(RuntimeError, match=texts[rank]):
                wrapper.allreduce([total])
        dist.barrier()


def test_hang() -> None:
    run(3, _hang)


def _shrunk(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        backend = dist.distributed_c10d._get_default_group()._get_backend(CPU)
        assert backend.supports_shrinking
        if rank != 1:
            smaller = backend.shrink([1], 0)
            assert (smaller.rank(), smaller.size()) == (rank - (rank > 1), size - 1)
            total = torch.ones(1)
            smaller.allreduce([total]).wait()
            assert total == size - 1
        dist.barrier()


@needs("shrink")
def test_shrunk() -> None:
    run(3, _shrunk)


def _aborted(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        backend = dist.distributed_c10d._get_default_group()._get_backend(CPU)
        if rank == 0:
            work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
            begun = time.monotonic()
            backend.abort()
            with pytest.raises(RuntimeError, match="aborted"):
                work.wait()
            with pytest.raises(RuntimeError, match="aborted"):
                dist.barrier()
            assert time.monotonic() - begun < 5
        else:
            with pytest.raises(RuntimeError, match="rank 0"):
                for _ in range(3):
                    dist.all_reduce(torch.ones(1 << 20))


def test_aborted() -> None:
    run(2, _aborted)


def _until_aborted(work: Callable[[], Any], begun: threading.Event, errors: list[str]) -> None:
    """Repeat `work` until it fails."""
    try:
        while True:
            begun.set()
            work()
    except RuntimeError as error:
        errors.append(str(error))


def _abort_once(number: int, chance: random.Random, pair: dist.ProcessGroup, other: int) -> None:
    backend = pair._get_backend(CPU)
    scaled = dist._make_nccl_premul_sum(0.5)
    collectives: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(torch.ones(2), group=pair),
        lambda: dist.all_reduce(torch.ones(2), op=scaled, group=pair, async_op=True).wait(),
    ]
    calls: list[Callable[[], Any]] = [
        collectives[number % 2],
        lambda: dist.send(torch.ones(2), other, group=pair),
        lambda: dist.recv(torch.empty(2), other, group=pair),
        lambda: tutti.torch.diagnose(pair),
        lambda: tutti.torch.flight_recorder(pair),
    ]
    dist.all_reduce(torch.ones(2), group=pair)
    errors: list[str] = []
    threads = []
    for call in calls:
        begun = threading.Event()
        threads.append(threading.Thread(target=_until_aborted, args=(call, begun, errors)))
        threads[-1].start()
        begun.wait()
    time.sleep(chance.random() * 0.004)
    chance.choice([backend.abort, backend.shutdown])()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a call does not end when its group does"
    assert len(errors) == len(threads), errors


def _abort_while_called(rank: int, size: int, path: str, rounds: int) -> None:
    chance = random.Random(rank)
    with group(rank, size, path):
        for number in range(rounds):
            pair = dist.new_group()
            _abort_once(number, chance, pair, 1 - rank)
            dist.barrier()
            dist.destroy_process_group(pair)


def test_abort_while_called() -> None:
    run(2, _abort_while_called, 40)


def _options(rank: int, size: int, path: str) -> None:
    with group(rank, size, path, seconds=77):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert backend.options._timeout == datetime.timedelta(seconds=77)
        backend._set_default_timeout(datetime.timedelta(seconds=12))
        assert backend.options._timeout == datetime.timedelta(seconds=12)


def test_options() -> None:
    run(2, _options)
