"""What goes wrong: ranks that die, are late, or call something else; a library or a compiler that is not there."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.utils.cpp_extension
from ranks import group, run, say_end, wait_for_end

from tutti.torch import _build


def _killed(rank: int, size: int, path: str, what: str) -> float:
    with group(rank, size, path):
        dist.barrier()
        if rank == 1:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(RuntimeError, match=r"rank 1.*(killed|died|ended|gone)"):
            if what == "recv":
                dist.recv(torch.zeros(3), 1)
            elif what == "future":
                dist.all_reduce(torch.zeros(3), async_op=True).get_future().wait()
            else:
                dist.all_reduce(torch.zeros(1 << 18))
        return time.monotonic() - begun - 0.3


@pytest.mark.parametrize("what", ["all_reduce", "future", "recv"])
def test_killed(what: str) -> None:
    results = run(3, _killed, what, may_die=1)
    assert max(results[0], results[2]) < 1, results


def _late(rank: int, size: int, path: str) -> None:
    limit = 10.0  # of the group's creation, too
    with group(rank, size, path, seconds=limit):
        dist.barrier()
        if rank == 0:
            begun = time.monotonic()
            with pytest.raises(RuntimeError, match=r"has not completed in .* ms.*rank 1"):
                dist.all_reduce(torch.ones(4))
            assert limit - 0.2 < time.monotonic() - begun < limit + 2
            with pytest.raises(RuntimeError, match=r"has not completed in"):  # the group is of no more use
                dist.all_reduce(torch.ones(4))
            say_end(rank)
        else:
            wait_for_end(0)


def test_late() -> None:
    run(2, _late)


def _late_work(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        dist.barrier()
        if rank == 0:
            work = dist.all_reduce(torch.ones(4), async_op=True)
            with pytest.raises(RuntimeError, match=r"has not completed in"):
                work.wait(datetime.timedelta(milliseconds=300))
            say_end(rank)
        else:
            wait_for_end(0)


def test_late_work() -> None:
    run(2, _late_work)


def _absent(rank: int, size: int, path: str) -> None:
    if rank != 2:
        limit = datetime.timedelta(seconds=5)
        with pytest.raises(RuntimeError, match="not here: rank 2"):
            store = dist.FileStore(path, size)
            dist.init_process_group("tutti", store=store, rank=rank, world_size=size, timeout=limit)


def test_absent() -> None:
    run(3, _absent)


def _different(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        dist.barrier()
        with pytest.raises(RuntimeError, match="different calls"):
            dist.all_reduce(torch.ones(1000 if rank else 3000))
            dist.barrier()


def test_different() -> None:
    run(2, _different)


def _alone(text: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")} | settings
    code = "import tutti.torch._build as b; " + text
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_no_library(tmp_path: Path) -> None:
    done = _alone("b.library()", TUTTI_LIBRARY=str(tmp_path / "nothing.so"))
    assert "TUTTI_LIBRARY names no file" in done.stderr


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("TUTTI_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"there is no C\+\+ compiler.*apt-get install g\+\+"):
        _build.build()


def test_wrong_library() -> None:
    done = _alone("b.build()", TUTTI_LIBRARY=torch.utils.cpp_extension.library_paths()[0] + "/libc10.so")
    assert "it is another NCCL, or an older Tutti" in done.stderr, done.stderr


def test_wrong_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'extension.cpp: no such member' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TUTTI_CACHE", str(tmp_path))
    advice = ". It is tested with PyTorch 2.13: install that one (pip install 'torch==2.13.*')"
    for version in ("2.99.0+cpu", "2.13.0+cpu"):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(RuntimeError, match="no such member") as failure:
            _build.build()
        expected = f"does not compile for PyTorch {version}{'' if version.startswith('2.13.') else advice}:"
        assert expected in str(failure.value)
    assert not list(tmp_path.glob("torch-*/*.so"))
