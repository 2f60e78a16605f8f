"""DistributedDataParallel, FSDP2 and torchrun: the same numbers as with Gloo."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_ddp.py"


def _network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7))


def _steps(model: torch.nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(5):
        loss = model(torch.randn(8, 20, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _ddp(rank: int, size: int, path: str, backend: str) -> list[float]:
    with group(rank, size, path, backend):
        return _steps(DistributedDataParallel(_network(), bucket_cap_mb=1), rank)


def _fsdp(rank: int, size: int, path: str, backend: str) -> list[float]:
    with group(rank, size, path, backend):
        mesh = init_device_mesh("cpu", (size,))
        model: Any = _network()
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return _steps(model, rank)


@pytest.mark.parametrize("kind", [_ddp, _fsdp])
def test_same_losses(kind: Any) -> None:
    for size in (2, 3):
        ours, theirs = run(size, kind, "tutti"), run(size, kind, "gloo")
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, rel=1e-6), f"{kind.__name__} of {size} ranks"


def _torchrun(backend: str) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    done = subprocess.run(
        [*command, str(EXAMPLE), "--backend", backend, "--steps", "20"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"loss (\d+\.\d+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


def test_torchrun() -> None:
    assert _torchrun("tutti") == pytest.approx(_torchrun("gloo"), abs=2e-6)


def test_device_map() -> None:
    assert dist.Backend.backend_capability["tutti"] == ["cpu"]
