"""How the processes of a launcher find each other: their ranks from its variables, and one id for all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import socket
import tempfile
import time
from collections.abc import Mapping

from . import _library

_MAGIC = b"tutti-id"
_calls = 0  # exchanges of this process: the n-th of each rank belongs to the n-th of the others


@dataclasses.dataclass(frozen=True)
class Job:
    """This process among those of its launcher.

    address, port: where rank 0 listens; None: nobody has named a place. local: all ranks run on this machine. key: text
    that the processes of this job share, and no others.
    """

    launcher: str
    rank: int
    size: int
    address: str | None = None
    port: int | None = None
    local: bool = False
    key: str = ""


# Launcher; variables of rank, size and ranks of this machine; variables that together name the job.
_LAUNCHERS = [
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID", "HYDRA_JOB_ID")),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_LOCAL", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
]


def _number(env: Mapping[str, str], name: str, launcher: str) -> int:
    text = env.get(name)
    if text is None:
        raise RuntimeError(
            f"from_env: {launcher} has set its rank, but not {name}: set it, or use Communicator.from_id"
        )
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(f"from_env: {name}={text!r} is no number") from None


def _first_host(hosts: str) -> str:
    """First host of Slurm's list: "node[07-09,12],other" is node07."""
    found = re.match(r"([^,\[]+)(?:\[([^\]-]+?)(?:[,-][^\]]*)?\])?", hosts)
    return "" if found is None else found.group(1) + (found.group(2) or "")


def _slurm_place(env: Mapping[str, str]) -> tuple[str | None, int | None]:
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_NODELIST")
    if not hosts:
        return None, None
    name = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_STEP_ID')}"
    return _first_host(hosts), 20000 + int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10000


def _place(env: Mapping[str, str], launcher: str) -> tuple[str | None, int | None]:
    if "MASTER_ADDR" in env and "MASTER_PORT" in env:
        port = _number(env, "MASTER_PORT", launcher)
        if not 0 < port < 65536:
            raise RuntimeError(f"from_env: MASTER_PORT={port} is no port: must be 1 to 65535")
        return env["MASTER_ADDR"], port
    return _slurm_place(env) if launcher == "Slurm" else (None, None)


def _key(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = [f"{name}={env[name]}" for name in names if name in env]
    return " ".join(found) if found else f"parent {os.getppid()}"  # the launcher's process on this machine


def find_job(env: Mapping[str, str] = os.environ) -> Job:
    """This process's job, from the variables of its launcher; a job of one where there are none."""
    for launcher, rank_name, size_name, local_name, key_names in _LAUNCHERS:
        if rank_name not in env:
            continue
        rank, size = _number(env, rank_name, launcher), _number(env, size_name, launcher)
        if not 0 <= rank < size:
            raise RuntimeError(f"from_env: {rank_name}={rank} is no rank of {size} ({size_name})")
        address, port = _place(env, launcher)
        local = env.get(local_name) == str(size) or (launcher == "Slurm" and env.get("SLURM_NNODES") == "1")
        return Job(launcher, rank, size, address, port, local, _key(env, key_names))
    return Job("none", 0, 1)


# ---- The ways ----


def _left(end: float) -> float:
    return max(0.05, end - time.monotonic())


def _late(job: Job, what: str) -> TimeoutError:
    return TimeoutError(f"from_env: rank {job.rank} of {job.size} ({job.launcher}): {what}")


def _greeting(number: int) -> bytes:
    return _MAGIC + number.to_bytes(4, "big")


def _listen(job: Job) -> socket.socket:
    """Rank 0's socket: of this machine alone, where the address says so; else of all its addresses."""
    if job.address == "localhost" or (job.address or "").startswith("127."):
        return socket.create_server((job.address or "", job.port or 0), backlog=job.size)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", job.port or 0), family=socket.AF_INET6, backlog=job.size, dualstack_ipv6=True)
    return socket.create_server(("", job.port or 0), backlog=job.size)


def _serve(job: Job, number: int, made: bytes, end: float) -> None:
    """Rank 0: gives the id to the others, each of which connects once."""
    with _listen(job) as server:
        missing = set(range(1, job.size))
        while missing:
            server.settimeout(_left(end))
            try:
                peer, _ = server.accept()
            except TimeoutError:
                raise _late(job, f"ranks {sorted(missing)} have not come to port {job.port}") from None
            with peer, contextlib.suppress(OSError):
                peer.settimeout(5)
                asked = _receive(peer, 16)
                if asked[:12] == _greeting(number):
                    peer.sendall(made)
                    missing.discard(int.from_bytes(asked[12:], "big"))


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection has ended")
        data += part
    return data


def _ask(job: Job, number: int, end: float) -> bytes:
    """Another rank: asks rank 0 until it answers."""
    reason: OSError | None = None
    while time.monotonic() < end:
        try:
            with socket.create_connection((job.address, job.port), timeout=_left(end)) as peer:
                peer.sendall(_greeting(number) + job.rank.to_bytes(4, "big"))
                return _receive(peer, 128)
        except OSError as failure:
            reason = failure
            time.sleep(0.02)
    raise _late(job, f"rank 0 does not answer at {job.address}:{job.port} (MASTER_ADDR, MASTER_PORT): {reason}")


def _by_address(job: Job, number: int, end: float) -> bytes:
    if job.rank != 0:
        return _ask(job, number, end)
    made = _library.unique_id()
    try:
        _serve(job, number, made, end)
    except OSError as failure:
        if isinstance(failure, TimeoutError):
            raise
        raise RuntimeError(f"from_env: rank 0 cannot listen on port {job.port} (MASTER_PORT): {failure}") from None
    return made


def _by_agent(job: Job, number: int, end: float) -> bytes:
    """torchrun's own store listens at MASTER_PORT: the id goes through it."""
    import datetime

    from torch.distributed import TCPStore

    store = TCPStore(job.address, job.port, is_master=False, timeout=datetime.timedelta(seconds=_left(end)))
    name = f"tutti/{job.key}/{number}"
    if job.rank == 0:
        store.set(name, _library.unique_id())
    return bytes(store.get(name))


def _by_file(job: Job, number: int, end: float) -> bytes:
    """All ranks are on this machine: rank 0 leaves the id in a file of its user."""
    name = hashlib.sha256(f"{job.launcher} {job.key} {number}".encode()).hexdigest()[:24]
    path = pathlib.Path(tempfile.gettempdir()) / f"tutti-{os.getuid()}-{name}"
    if job.rank == 0:
        return _leave_file(job, path, end)
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid != os.getuid():
                raise RuntimeError(f"from_env: {path} belongs to another user")
            made = path.read_bytes()
            (path.parent / f"{path.name}.{job.rank}").touch(0o600, exist_ok=True)
            return made
        time.sleep(0.002)
    raise _late(job, f"rank 0 has not written {path}")


def _leave_file(job: Job, path: pathlib.Path, end: float) -> bytes:
    made = _library.unique_id()
    seen = [path.parent / f"{path.name}.{rank}" for rank in range(1, job.size)]
    for old in [path, *seen]:  # of a job with the same key that was killed
        old.unlink(missing_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(made)
    os.rename(draft, path)
    try:
        while not all(one.exists() for one in seen):
            if time.monotonic() >= end:
                missing = [rank + 1 for rank, one in enumerate(seen) if not one.exists()]
                raise _late(job, f"ranks {missing} have not come")
            time.sleep(0.002)
    finally:
        for one in [path, *seen]:
            one.unlink(missing_ok=True)
    return made


def _by_mpi(job: Job) -> bytes | None:
    """mpi4py, where it is installed and its MPI is the launcher's."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    if MPI.COMM_WORLD.Get_size() != job.size:
        return None
    made: bytes = MPI.COMM_WORLD.bcast(_library.unique_id() if job.rank == 0 else None, root=0)
    return made


def exchange_id(job: Job, timeout: float | None) -> bytes:
    """One id for all ranks of the job."""
    global _calls
    number, _calls = _calls, _calls + 1
    end = time.monotonic() + (timeout if timeout is not None else 1e9)
    if job.size == 1 or os.environ.get("NCCL_COMM_ID"):
        return _library.unique_id()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _by_agent(job, number, end)
    if job.address is not None:
        return _by_address(job, number, end)
    if job.local:
        return _by_file(job, number, end)
    made = _by_mpi(job)
    if made is None:
        raise RuntimeError(
            f"from_env: {job.size} ranks ({job.launcher}) on several machines have no place to meet: set MASTER_ADDR "
            "(rank 0's machine) and MASTER_PORT, install mpi4py, or use Communicator.from_id"
        )
    return made
