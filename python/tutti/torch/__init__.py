"""The back end "tutti" of torch.distributed, for CPU tensors.

    import tutti.torch
    torch.distributed.init_process_group("tutti")  # or "cpu:tutti,cuda:nccl"

The C++ part is compiled for the installed PyTorch when the first process group is made, and kept
(``python -m tutti.torch`` does it beforehand). docs/torch.md has the rest.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

try:
    import torch
    import torch.distributed as dist
except ImportError as failure:
    raise ImportError(f"tutti.torch needs PyTorch: pip install torch==2.13.0 ({failure})") from failure

from tutti.torch import _allocator, _build
from tutti.torch._allocator import allocator_stats, empty_cache, use_shared_allocator
from tutti.torch._build import build
from tutti_autoload import register

__all__ = [
    "allocator_stats",
    "build",
    "create",
    "diagnose",
    "empty_cache",
    "flight_recorder",
    "monitored_barrier",
    "register",
    "use_shared_allocator",
]


def create(options: Any, backend_options: Any) -> Any:
    """Make the back end of one process group: what torch.distributed calls."""
    timeout = options.timeout
    if backend_options is not None:
        timeout = getattr(backend_options, "_timeout", timeout)
    return _build.extension().create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        timeout.total_seconds(),
        options.group_id,
        list(options.global_ranks_in_group),
    )


def _backend(group: Any) -> Any:
    group = dist.distributed_c10d._get_default_group() if group is None else group
    return group._get_backend(torch.device("cpu"))


def diagnose(group: Any = None) -> dict[str, Any]:
    """Say what the group's communicator does just now: who waits for whom, and the verdict (docs/hangs.md)."""
    answer: dict[str, Any] = json.loads(_build.extension().diagnose(_backend(group)))
    return answer


def flight_recorder(group: Any = None) -> dict[str, Any]:
    """Give the last operations of this process's communicators, in the form of PyTorch's flight recorder."""
    answer: dict[str, Any] = json.loads(_build.extension().flight_recorder(_backend(group)))
    return answer


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """Wait for all ranks; rank 0's error names the ranks that have not come. torch.distributed's is Gloo's alone.

    ``wait_all_ranks``: name all of them, not the first one. ``timeout``: the group's where it is None.
    """
    group = dist.distributed_c10d._get_default_group() if group is None else group
    group.monitored_barrier(timedelta(milliseconds=-1) if timeout is None else timeout, wait_all_ranks=wait_all_ranks)


register()
if _allocator.wanted():
    use_shared_allocator()
