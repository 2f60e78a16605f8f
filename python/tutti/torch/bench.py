"""Time all_reduce of float32 as Python sees it: this back end, Gloo, and PyTorch's own "fake", which does nothing.

    chrt -r 20 python -m tutti.torch.bench

Starts the ranks, binds each to a core and lets the back ends take turns. A time is the slowest rank's, the median of
the rounds. docs/torch.md says what the calls are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

BACKENDS = ("tutti", "fake", "gloo")


def _calls(dist: Any, torch: Any, group: Any, tensor: Any) -> dict[str, Callable[[], Any]]:
    """Give PyTorch's ways to the same operation."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensors = [tensor]
    backend = group._get_backend(torch.device("cpu"))
    functional, name = torch.ops._c10d_functional, group.group_name

    def finish(work: Any) -> None:
        if work is not None:
            work.wait()

    return {
        "dist.all_reduce": lambda: dist.all_reduce(tensor, group=group),
        "dist.all_reduce, async_op": lambda: dist.all_reduce(tensor, group=group, async_op=True).wait(),
        "_c10d_functional.all_reduce_": lambda: functional.wait_tensor(functional.all_reduce_(tensor, "sum", name)),
        "ProcessGroup.allreduce": lambda: finish(group.allreduce(tensors, options)),
        "Backend.allreduce": lambda: finish(backend.allreduce(tensors, options)),
    }


def _measure(call: Callable[[], Any], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count * 1e6


def _turns(dist: Any, torch: Any, groups: dict[str, Any], options: argparse.Namespace) -> dict[tuple[str, str], float]:
    """Measure all columns in turn. Keys: row, back end."""
    columns: dict[tuple[str, str], tuple[Callable[[], Any], int]] = {}
    for size in options.bytes:
        count = max(1, min(options.calls, options.calls * 1024 // size))
        for backend, group in groups.items():
            calls = _calls(dist, torch, group, torch.zeros(size // 4))
            for name in calls if size == options.bytes[0] else ("dist.all_reduce",):
                few = max(1, count // 20) if backend == "gloo" else count
                columns[f"{size} B, {name}", backend] = (calls[name], few)
    times: dict[tuple[str, str], list[float]] = {column: [] for column in columns}
    for turn in range(options.rounds + 1):
        for column, (call, count) in columns.items():
            dist.barrier()
            slowest = torch.tensor([_measure(call, count)])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if turn > 0:  # the first one warms up
                times[column].append(slowest.item())
    return {column: statistics.median(all_rounds) for column, all_rounds in times.items()}


def _rank(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 (it makes the name known)

    import tutti.torch

    torch.set_num_threads(1)
    rank, cores = int(os.environ["RANK"]), sorted(os.sched_getaffinity(0))
    tutti.torch.build()
    dist.init_process_group("tutti")
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    found = _turns(dist, torch, groups, options)
    if rank == 0:
        print(f"PyTorch {torch.__version__}, {options.ranks} ranks, median of {options.rounds} rounds, µs")
        print(f"{'':48}", *(f"{backend:>9}" for backend in BACKENDS), " tutti - fake")
        for row in dict.fromkeys(row for row, _ in found):
            times = [found[row, backend] for backend in BACKENDS]
            print(f"{row:48}", *(f"{each:9.2f}" for each in times), f"{times[0] - times[1]:13.2f}")
    dist.destroy_process_group()


def main() -> int:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(prog="python -m tutti.torch.bench", description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("-b", "--bytes", type=int, nargs="+", default=[8, 8192, 1 << 20], help="multiples of 4")
    parser.add_argument("-r", "--rounds", type=int, default=21)
    parser.add_argument("-c", "--calls", type=int, default=2000, help="in a round, of at most 1 KiB; of more, fewer")
    options = parser.parse_args()
    if "RANK" in os.environ:
        _rank(options)
        return 0
    from tutti._spawn import spawn

    return spawn("tutti.torch.bench", options.ranks, sys.argv[1:], OMP_NUM_THREADS="1")


if __name__ == "__main__":
    sys.exit(main())
