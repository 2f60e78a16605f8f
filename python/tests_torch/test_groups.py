"""Groups: new, split, shrunk, aborted; coalescing; barriers with names; sequence numbers."""

from __future__ import annotations

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from ranks import group, run
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


def _monitored(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for _ in range(3):
            tutti.torch.monitored_barrier()
        limit = datetime.timedelta(milliseconds=300)
        if rank == 0:
            with pytest.raises(RuntimeError, match="Ranks 1, 3 failed to pass monitoredBarrier in 300 ms"):
                tutti.torch.monitored_barrier(timeout=limit, wait_all_ranks=True)
        elif rank == 2:
            with pytest.raises(RuntimeError, match="Ranks 1, 3 failed"):
                tutti.torch.monitored_barrier(timeout=limit * 20)
        dist.barrier()


def test_monitored() -> None:
    run(4, _monitored)


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
