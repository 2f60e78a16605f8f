"""What PyTorch's profiler sees of the back end."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from ranks import group, run
from torch.distributed.distributed_c10d import _coalescing_manager

CPU = torch.device("cpu")


def _events(profile: Any) -> list[tuple[str, list[list[int]]]]:
    """Name the events of the back end with the shapes of their inputs, in the order of their begin."""
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    return [(event.name, event.input_shapes) for event in events if event.name.startswith("tutti:")]


def _names(rank: int, size: int, path: str) -> list[tuple[str, list[list[int]]]]:
    with group(rank, size, path):
        dist.all_reduce(torch.ones(3))  # before the profiler, and behind it: no record
        with torch.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3))
            dist.broadcast(torch.ones(4), 0, async_op=True).wait()
            dist.isend(torch.ones(2), 1).wait() if rank == 0 else dist.irecv(torch.ones(2), 0).wait()
            dist.all_reduce(torch.ones(5, 2).to_sparse())
        dist.reduce(torch.ones(3), 0)
        return _events(profile)


def test_titles() -> None:
    for rank, events in enumerate(run(2, _names)):
        names = ["all_reduce", "broadcast", "recv" if rank else "send", "sparse_all_reduce"]
        assert [name for name, _ in events] == [f"tutti:{name}" for name in names]
        assert [shapes for _, shapes in events][:3] == [[[3]], [[4]], [[2]]]


def _coalesced(rank: int, size: int, path: str) -> list[tuple[str, list[list[int]]]]:
    with group(rank, size, path):
        ours = dist.distributed_c10d._get_default_group()
        with torch.profiler.profile(record_shapes=True) as profile:
            with _coalescing_manager():
                for n in (3, 5):
                    dist.all_reduce(torch.ones(n))
            with _coalescing_manager():
                for n in (2, 7):
                    dist.all_gather_into_tensor(torch.zeros(n * size), torch.ones(n))
            with _coalescing_manager(async_ops=True) as manager:
                for n in (2, 7):
                    dist.reduce_scatter_tensor(torch.zeros(n), torch.ones(n * size))
            manager.wait()
            lists = [[torch.zeros(4), torch.zeros(1)] for _ in range(size)]
            ours.allgather_coalesced(lists, [torch.ones(4), torch.ones(1)]).wait()
            with _coalescing_manager(device=CPU):
                for n in (3, 5):
                    dist.all_reduce(torch.ones(n))
            peer = 1 - rank
            ops = [dist.P2POp(dist.isend, torch.ones(3), peer), dist.P2POp(dist.irecv, torch.ones(3), peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        return _events(profile)


def test_coalesced_operations_are_one_event() -> None:
    expected = [
        ("tutti:all_reduce_coalesced", [[3], [5]]),
        ("tutti:all_gather_into_tensor_coalesced", [[2], [7]]),
        ("tutti:reduce_scatter_tensor_coalesced", [[4], [14]]),
        ("tutti:all_gather_coalesced", [[4], [1]]),
        ("tutti:coalesced", []),
        ("tutti:coalesced", []),
    ]
    assert run(2, _coalesced) == [expected] * 2
