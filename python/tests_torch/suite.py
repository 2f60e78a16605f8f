"""Lets PyTorch's own tests run with this back end: a plug-in of pytest (`-p suite`). Their files are not changed.

SUITE_AS says which name the tests use. "tutti": that of the plug-in. "gloo", "mpi": one of PyTorch's own, for tests
that ask for it; what it then gives is this back end. Ranks are forked from a process that has imported PyTorch.
"""

# ruff: noqa: E402 (the variables must be set before the imports)
from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from typing import Any

NAME = os.environ.get("SUITE_AS", "tutti")
os.environ["BACKEND"] = NAME
os.environ.setdefault("WORLD_SIZE", "3")
if "TEMP_DIR" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="tutti-suite-")  # removed when this process ends
    os.environ["TEMP_DIR"] = _folder.name
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")

import torch
import torch.distributed as dist
import torch.testing._internal.common_distributed as common
from torch.distributed import distributed_c10d

import tutti.torch

torch.set_num_threads(1)  # a forked process has no threads but its own
torch.multiprocessing.set_start_method("fork")
tutti.torch._build.extension()


def _fork_processes(self: Any) -> None:
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


def _seconds(limit: Any) -> float:
    return limit.total_seconds() if isinstance(limit, timedelta) else float(limit)


class _AnyTutti(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, tutti.torch._build.extension().ProcessGroupTutti)


class _Gloo(metaclass=_AnyTutti):
    """What `ProcessGroupGloo` is to the tests, and makes."""

    _Options = distributed_c10d.ProcessGroupGloo._Options
    create_device = staticmethod(distributed_c10d.ProcessGroupGloo.create_device)

    def __new__(cls, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        """Make the back end. `options`: Gloo's; of them it takes the time-out."""
        if isinstance(options, timedelta):
            options, timeout = None, options
        limit = timeout if timeout is not None else options._timeout if options is not None else timedelta(minutes=30)
        return tutti.torch._build.extension().create_backend(store, rank, size, _seconds(limit), "", list(range(size)))


common.MultiProcessTestCase._spawn_processes = _fork_processes
for _feature in common.DistTestCases.backend_feature.values():  # lists of back ends, by name
    if "gloo" in _feature:
        _feature.add("tutti")
common.DistTestCases.backend_feature["plugin"].add("tutti")
if NAME == "gloo":
    tutti.torch._build.extension().ProcessGroupTutti.create_device = _Gloo.create_device
    distributed_c10d.ProcessGroupGloo = dist.ProcessGroupGloo = _Gloo
if NAME == "mpi":
    dist.is_mpi_available = lambda: True
