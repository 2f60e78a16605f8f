"""Runs a function in several processes, one per rank, with a time limit."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tutti.torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

torch.set_num_threads(1)
tutti.torch.build()  # not in the tests' time


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test of a function that PyTorch's back ends have not had from the beginning."""
    there = hasattr(torch._C._distributed_c10d.Backend, name)
    return pytest.mark.skipif(not there, reason=f"the back ends of PyTorch {torch.__version__} have no {name}")


@contextmanager
def group(rank: int, size: int, path: str, backend: str = "tutti", seconds: float = 60) -> Iterator[None]:
    """Be one rank of a process group that meets in the file `path`."""
    limit = datetime.timedelta(seconds=seconds)
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=size, timeout=limit)
    yield
    dist.destroy_process_group()


def wait_for_end(*others: int) -> None:
    """Wait until each of these ranks has called say_end: the calling rank is as late as they need it to be."""
    store = dist.distributed_c10d._get_default_group().get_group_store()
    store.wait([f"ended/{other}" for other in others])


def say_end(rank: int) -> None:
    """Let the ranks go on that wait for this one's end."""
    dist.distributed_c10d._get_default_group().get_group_store().set(f"ended/{rank}", "")


def _main(
    pipe: Connection, function: Callable[..., Any], rank: int, size: int, path: str, args: tuple[Any, ...]
) -> None:
    try:
        pipe.send((True, function(rank, size, path, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    os._exit(0)  # the parent's fixtures are not this process's


def run(size: int, function: Callable[..., Any], *args: Any, seconds: float = 90, may_die: int = -1) -> list[Any]:
    """Run function(rank, size, path, *args) in `size` processes; give their results. `may_die`: a rank that may."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes, children = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            child = context.Process(target=_main, args=(theirs, function, rank, size, f"{folder}/meet", args))
            child.start()
            theirs.close()
            pipes.append(ours)
            children.append(child)
        results: dict[int, Any] = {}
        errors: list[str] = []
        end = time.monotonic() + seconds
        while len(results) < size and time.monotonic() < end and not errors:
            for pipe in wait([p for r, p in enumerate(pipes) if r not in results], timeout=1):
                assert isinstance(pipe, Connection)
                rank = pipes.index(pipe)
                try:
                    good, results[rank] = pipe.recv()
                except EOFError:
                    good, results[rank] = rank == may_die, f"rank {rank} has died"
                if not good:
                    errors.append(f"rank {rank}:\n{results[rank]}")
        for child in children:
            child.join(0.0 if errors or len(results) < size else 10)
            if child.is_alive():
                child.kill()
                child.join()
        assert not errors, "\n".join(errors)
        assert len(results) == size, f"no answer in {seconds} s from ranks {sorted(set(range(size)) - set(results))}"
        return [results[rank] for rank in range(size)]
