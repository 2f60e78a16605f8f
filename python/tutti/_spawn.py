"""Starts the ranks of a program of this package as processes of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(started: list[subprocess.Popen[bytes]]) -> int:
    # The first failure ends the others: they would wait for it.
    while any(process.poll() is None for process in started):
        if any(process.poll() for process in started):
            break
        time.sleep(0.02)
    return next((status for process in started if (status := process.poll())), 0)


def spawn(module: str, size: int, arguments: list[str], **env: str) -> int:
    """Runs `python -m module arguments` as `size` ranks. Returns the first exit status that is not 0, or 0."""
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), **env}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            variables = {**os.environ, **common, "RANK": str(rank)}
            started.append(subprocess.Popen([sys.executable, "-m", module, *arguments], env=variables))
        return _wait(started)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
