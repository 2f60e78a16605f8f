"""Helpers of the tests: ranks as threads, and as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import tutti

LIMIT = 60.0


def on_threads(size: int, work: Callable[[tutti.Communicator], Any]) -> list[Any]:
    """Calls work(comm) on `size` threads, each a rank. Returns their values; raises the first exception."""
    results: list[Any] = [None] * size
    errors: list[BaseException] = []
    comms = tutti.Communicator.threads(size)

    def run(comm: tutti.Communicator) -> None:
        try:
            results[comm.rank] = work(comm)
        except BaseException as error:
            errors.append(error)
            for one in comms:
                one.abort()

    threads = [threading.Thread(target=run, args=(comm,), daemon=True) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a rank hangs"
    for comm in comms:
        comm.close()
    if errors:
        raise errors[0]
    return results


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_processes(size: int, code: str, **env: str) -> list[subprocess.Popen[str]]:
    """Starts `size` processes that run `code`, each a rank in the variables of torchrun."""
    port = str(free_port())
    started = []
    for rank in range(size):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **env}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code)],
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def finish(processes: list[subprocess.Popen[str]], limit: float = LIMIT) -> list[tuple[int, str, str]]:
    """Waits for them: exit status, output and errors of each. Ends those that take too long."""
    ends = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += "\n(killed: it took too long)"
        ends.append((process.returncode, out, err))
    return ends


def on_processes(size: int, code: str, **env: str) -> list[str]:
    """Runs `code` on `size` processes, which must all succeed. Returns their outputs."""
    ends = finish(start_processes(size, code, **env))
    assert all(status == 0 for status, _, _ in ends), "\n".join(err for _, _, err in ends)
    return [out for _, out, _ in ends]
