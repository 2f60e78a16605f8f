"""What torch.distributed's functions do not reach: splits, merges, memory, time limits that change; old PyTorch."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, needs, run, say_end, wait_for_end

import tutti.torch
from tutti.torch import _build

CPU = torch.device("cpu")


def _backend() -> Any:
    return dist.distributed_c10d._get_default_group()._get_backend(CPU)


def _split(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        assert _backend().supports_splitting
        for number in range(2):  # a second time with the same ranks
            ranks = [0, 2] if rank != 1 else [1]
            part = dist.distributed_c10d._get_default_group().split_group(
                ranks, group_name=f"part{number}-{len(ranks)}"
            )
            assert part.size() == len(ranks) and part.rank() == ranks.index(rank)
            total = torch.full((5,), float(rank))
            part.allreduce([total]).wait()
            assert total.eq(sum(ranks)).all()
            assert part._get_backend(CPU).name() == "tutti"
        dist.barrier()


def test_split() -> None:
    run(3, _split)


def _merge(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        alone = dist.new_group([rank], use_local_synchronization=True)
        store = dist.FileStore(path + "-merge", size)
        merged = alone.merge_remote_group(store, size, datetime.timedelta(seconds=60))
        assert merged.size() == size
        total = torch.full((5,), float(rank))
        merged.allreduce([total]).wait()
        assert total.eq(sum(range(size))).all()
        dist.barrier()


def test_merge() -> None:
    run(3, _merge)


def _allocated(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        backend = _backend()
        assert backend.supports_tensor_alloc(CPU)
        small = backend.allocate_tensor(10, dtype=torch.int64, device=CPU)
        assert tutti.torch.allocator_stats()["used"] == 0
        large = backend.allocate_tensor(1 << 18, dtype=torch.float32, device=CPU)
        other = torch.ones(1 << 18)  # not asked for from there
        assert tutti.torch.allocator_stats()["used"] >= large.nbytes
        assert tutti.torch.allocator_stats()["used"] < large.nbytes + other.nbytes
        for tensor in (small, large):
            work = dist.all_reduce(tensor.fill_(rank + 1), async_op=True)
            assert work is not None
            work.wait()
            assert tensor.dim() == 1 and tensor.eq(sum(range(size + 1))).all()
        del large, tensor, work
        dist.barrier()  # the group forgets what has ended when it is called again
        assert tutti.torch.allocator_stats()["used"] == 0
        for wrong in ({"size": -1, "device": CPU}, {"size": 1, "device": torch.device("meta")}):
            with pytest.raises(RuntimeError, match=r"allocate_tensor: the (size is -1|device is meta)"):
                backend.allocate_tensor(dtype=torch.float32, **wrong)


def test_allocated() -> None:
    run(2, _allocated)


def _suspended(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        dist.all_reduce(torch.ones(1 << 20))
        before = _backend().memory_stats()
        assert before["suspended"] == 0 < before["suspend"] < before["total"], before
        _backend().suspend()
        assert _backend().memory_stats()["suspended"] == 1
        with pytest.raises(RuntimeError, match="suspended"):
            dist.all_reduce(torch.ones(1))
        _backend().resume()
        total = torch.ones(1 << 20)
        dist.all_reduce(total)
        assert total.eq(size).all() and _backend().memory_stats()["suspended"] == 0


@needs("memory_stats")
def test_suspended() -> None:
    run(2, _suspended)


def _who_does_not_suspend(rank: int, size: int, path: str, first: int) -> None:
    """Rank 1 does not come: whoever gives up first, each text names it, and nobody else waits longer."""
    with group(rank, size, path):
        dist.barrier()
        limit = 1 if first in (rank, -1) else 60
        _backend().set_timeout(datetime.timedelta(seconds=limit))
        if rank == 1:
            wait_for_end(*(other for other in range(size) if other != rank))
            return
        begun = time.monotonic()
        with pytest.raises(RuntimeError, match=r"suspend: .*; not here: rank 1"):
            _backend().suspend()
        assert time.monotonic() - begun < 30
        say_end(rank)


@needs("suspend")
@pytest.mark.parametrize("first", [-1, 0, 2])
def test_who_does_not_suspend(first: int) -> None:
    run(3, _who_does_not_suspend, first)


def _set_timeout(rank: int, size: int, path: str) -> None:
    with group(rank, size, path, seconds=60):
        dist.barrier()
        _backend().set_timeout(datetime.timedelta(milliseconds=400))
        if rank == 0:
            begun = time.monotonic()
            with pytest.raises(RuntimeError, match=r"has not completed in .* ms.*rank 1"):
                dist.all_reduce(torch.ones(4))
            assert time.monotonic() - begun >= 0.35
            say_end(rank)
        else:
            wait_for_end(0)


def test_set_timeout() -> None:
    run(2, _set_timeout)


def _coalesced(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for op, expected in ((dist.ReduceOp.SUM, 6), (dist.ReduceOp.MAX, 3), (dist.ReduceOp.PRODUCT, 6)):
            tensors = [torch.full(shape, rank + 1, dtype=torch.int64) for shape in ((1,), (3, 0), (40, 50))]
            tensors.append(torch.full((50, 40), rank + 1, dtype=torch.int64).t())  # not contiguous
            opts = dist.AllreduceCoalescedOptions()
            opts.reduceOp = op
            work = _backend().allreduce_coalesced(tensors, opts)
            work.wait()
            assert work.is_completed() and all(tensor.eq(expected).all() for tensor in tensors)
        mixed = [torch.ones(3), torch.ones(3, dtype=torch.float64)]
        _backend().allreduce_coalesced(mixed).wait()
        assert all(tensor.eq(3).all() for tensor in mixed)
        with pytest.raises(RuntimeError, match="all_reduce_coalesced"):
            _backend().allreduce_coalesced([]).wait()


def test_all_reduce_coalesced() -> None:
    run(3, _coalesced)


def _several(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for op, expected in ((dist.ReduceOp.SUM, 1 + 2 + 3 + 4), (dist.ReduceOp.MAX, 4), (dist.ReduceOp.BOR, 7)):
            tensors = [torch.full((6,), 2 * rank + i + 1, dtype=torch.int32) for i in range(2)]
            opts = dist.AllreduceOptions()
            opts.reduceOp = op
            _backend().allreduce(tensors, opts).wait()
            assert all(tensor.eq(expected).all() for tensor in tensors), (op, tensors)


def test_all_reduce_of_several_tensors_of_a_rank() -> None:
    run(2, _several)


def test_versions() -> None:
    for good in (torch.__version__, "2.9.0", "2.10.0a0+git1234", "3.0.0"):
        _build.check_version(good)
    with pytest.raises(RuntimeError, match=r"needs PyTorch 2\.9 or newer, and this is 2\.8\.1\+cpu"):
        _build.check_version("2.8.1+cpu")
