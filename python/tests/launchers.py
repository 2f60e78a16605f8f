"""Helpers of the tests of launchers, here and in tests_torch: a program, its start by a launcher, and two hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Two communicators in turn; each rank leaves what it has got in a file: launchers mix the outputs.
PROGRAM = """
    import os, sys, tutti
    results = []
    for _ in range(2):
        with tutti.Communicator.from_env(timeout=60) as comm:
            x = memoryview(bytearray(4)).cast("i")
            x[0] = comm.rank + 1
            results.append(comm.all_reduce(x)[0])
    with open(os.path.join(sys.argv[1], str(comm.rank)), "w") as file:
        print(comm.size, *results, file=file)
"""
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "MPI_LOCAL", "TORCHELASTIC_", "HYDRA_")


def write_program(folder: Path) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def start(
    program: Path, *command: str, keep: bool = False, more: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start `command` with the program behind it. The variables of other launchers are not passed on, unless `keep`."""
    kept = {k: v for k, v in os.environ.items() if keep or not k.startswith(NAMES)}
    return subprocess.Popen(
        [*command, str(program), str(program.parent)],
        env=kept | (more or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def check(program: Path, *started: subprocess.Popen[str], limit: float = 100) -> None:
    """Wait for what was started, and look at the results of two ranks. What takes too long is killed, with children."""
    texts = []
    for process in started:
        try:
            texts.append(process.communicate(timeout=limit)[0])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            texts.append(f"{process.communicate()[0]}\n(killed: it took longer than {limit} s)")
    assert all(process.returncode == 0 for process in started), "\n".join(texts)
    for rank in range(2):
        assert (program.parent / str(rank)).read_text() == "2 3 3\n"
    assert not (program.parent / "2").exists()


def finish(command: list[str], env: dict[str, str], limit: float) -> tuple[int, str, str]:
    """Run a command: exit status, output, errors. If it takes too long it is killed, with all that it has started."""
    out, err = subprocess.PIPE, subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=out, stderr=err, text=True, start_new_session=True) as process:
        try:
            texts = process.communicate(timeout=limit)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, *texts


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _await_cable(host: str) -> None:
    """Wait until the interface runs: a process looks for the interfaces of its host only once."""
    end = time.monotonic() + 10
    while "state UP" not in _ip("-n", host, "link", "show", "v0"):
        assert time.monotonic() < end, f"v0 of {host} does not run"
        time.sleep(0.01)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Two network namespaces, joined by a cable: the words before a command that run it there. The first has the
    address 10.79.0.1."""
    hosts = f"ttpy{os.getpid()}a", f"ttpy{os.getpid()}b"
    try:
        try:
            for host in hosts:
                _ip("netns", "add", host)
            _ip("link", "add", "v0", "netns", hosts[0], "type", "veth", "peer", "name", "v0", "netns", hosts[1])
            for number, host in enumerate(hosts):
                _ip("-n", host, "link", "set", "lo", "up")
                _ip("-n", host, "addr", "add", f"10.79.0.{number + 1}/24", "dev", "v0")
                _ip("-n", host, "link", "set", "v0", "up")
                _ip("netns", "exec", host, "true")
        except OSError as failure:
            pytest.skip(f"two hosts were not made: {failure}")
        except subprocess.CalledProcessError as failure:
            pytest.skip(f"two hosts were not made: {failure}: {failure.stderr.strip()}")
        for host in hosts:
            _await_cable(host)
        yield ("ip", "netns", "exec", hosts[0]), ("ip", "netns", "exec", hosts[1])
    finally:
        for host in hosts:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)
