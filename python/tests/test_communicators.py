"""Making communicators: split, shrink, grow, windows, launchers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from ranks import finish, on_processes, on_threads, start_processes

import tutti
from tutti import _launch


def test_split() -> None:
    def work(comm: tutti.Communicator) -> Any:
        part = comm.split(comm.rank % 2 if comm.rank < 3 else None, key=-comm.rank, timeout=30)
        if part is None:
            return None
        with part:
            return part.rank, part.size, part.all_reduce(np.array([comm.rank]))[0]

    assert on_threads(4, work) == [(1, 2, 2), (0, 1, 1), (0, 2, 2), None]
    with pytest.raises(ValueError, match="0 or more"), tutti.Communicator.from_env() as comm:
        comm.split(-1)


def test_shrink() -> None:
    def work(comm: tutti.Communicator) -> Any:
        if comm.rank == 1:
            return None
        with comm.shrink([1], timeout=30, commName="small") as small:
            return small.rank, small.size, small.all_reduce(np.array([comm.rank]))[0]

    assert on_threads(3, work) == [(0, 2, 2), None, (1, 2, 2)]


def test_grow() -> None:
    outputs = on_processes(
        3,
        """
        import os, numpy as np, tutti, pathlib, time
        rank = int(os.environ["RANK"])
        path = pathlib.Path(os.environ["ID_FILE"])
        if rank < 2:
            os.environ["WORLD_SIZE"] = "2"
            comm = tutti.Communicator.from_env(timeout=30)
            if rank == 0:
                draft = path.with_suffix(".draft")
                draft.write_bytes(comm.grow_id())
                draft.rename(path)
            grown = comm.grow(3, timeout=30)
            comm.close()
        else:
            while not path.exists():
                time.sleep(0.01)
            grown = tutti.Communicator.join(path.read_bytes(), 2, 3, timeout=30)
        print(grown.rank, grown.all_reduce(np.array([rank]))[0])
        grown.close()
        """,
        ID_FILE=_id_file(),
    )
    assert outputs == ["0 3\n", "1 3\n", "2 3\n"]


def _id_file() -> str:
    import tempfile

    return tempfile.mkdtemp() + "/id"


def test_windows() -> None:
    def work(comm: tutti.Communicator) -> None:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        with comm.window(4096) as window:
            data = np.frombuffer(window.memory, "i4")
            data[:4] = comm.rank
            window.put(data[:4], right, offset=64)
            window.wait(left)
            assert (data[16:20] == left).all() and (data[:4] == comm.rank).all()
            window.signal(left, signal=0)
            window.wait(right)
            with pytest.raises(tutti.TuttiError):
                window.put(data[:4], right, offset=4096)
            comm.barrier()
        own = np.zeros(8, "f8")
        with comm.window(own) as window:
            own[0] = comm.rank + 0.5
            window.put(own[:1], right, offset=8)
            window.wait(left)
            assert own[1] == left + 0.5
            comm.barrier()
        with pytest.raises(BufferError, match="read-only"):
            comm.window(b"constant")

    on_threads(3, work)


def _exchanged(comm: tutti.Communicator, array: Any) -> None:
    """Each rank puts its element 0 behind its right neighbour's; `array` has that many and more."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with comm.window(array) as window:
        array[:] = comm.rank + 1
        comm.barrier()
        size = len(window.memory) // len(array)
        assert window.memory.format == "B" and len(window.memory) == size * len(array)
        window.put(array[:1], right, offset=size)
        window.wait(left)
        assert array[1] == left + 1 and array[0] == comm.rank + 1 == array[2]
        assert bytes(window.memory[size : 2 * size]) != bytes(window.memory[:size])
        comm.barrier()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_windows_of_types_without_a_format(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    on_threads(2, lambda comm: _exchanged(comm, np.zeros(5, getattr(ml_dtypes, name))))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64"])
def test_windows_of_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    on_threads(2, lambda comm: _exchanged(comm, torch.zeros(5, dtype=getattr(torch, name))))


def test_windows_of_arrays_that_do_not_fit() -> None:
    with tutti.Communicator.from_env() as comm, comm.window(16) as window:
        with pytest.raises(BufferError, match=r"window: .* is not contiguous"):
            comm.window(np.zeros((4, 4))[:, 1])
        with pytest.raises(TypeError, match=r"window: .* is no array"):
            comm.window([1, 2])
        with pytest.raises(BufferError, match=r"put: .* is not contiguous"):
            window.put(window.memory[::2], 0)
        window.put(window.memory[:4].toreadonly(), 0, offset=8)
        window.wait(0)


def test_a_window_keeps_its_memory() -> None:
    def work(comm: tutti.Communicator) -> None:
        dropped = bytearray(64)
        comm.window(dropped)
        gc.collect()
        with pytest.raises(BufferError):  # peers may still write
            dropped.append(0)
        own = bytearray(64)
        comm.window(own).close()
        own.append(0)
        comm.close()
        dropped.append(0)

    on_threads(2, work)


def test_memory_that_peers_map() -> None:
    def work(comm: tutti.Communicator) -> float:
        x = np.frombuffer(tutti.alloc(1 << 20), "f4")
        x[:] = comm.rank + 1
        comm.all_reduce(x)
        return float(x.min())

    assert on_threads(2, work) == [3, 3]
    with pytest.raises(ValueError, match="at least 1"):
        tutti.alloc(0)


def test_what_it_tells() -> None:
    with tutti.Communicator.from_env(commName="told") as comm:
        assert comm.timeout is None
        comm.timeout = 2.5
        assert comm.timeout == 2.5
        comm.all_reduce(np.ones(1))
        comm.check()
        assert comm.diagnose()["name"] == "told"
        assert "entries" in comm.flight_recorder() or comm.flight_recorder()
        comm.revoke()
        with pytest.raises(tutti.TuttiUsageError, match="revoked"):
            comm.all_reduce(np.ones(1))


# ---- Launchers ----


def test_jobs_of_launchers() -> None:
    torchrun = {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "box",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "x",
    }
    job = _launch.find_job(torchrun)
    assert (job.launcher, job.rank, job.size, job.address, job.port) == ("torchrun", 1, 4, "box", 29500)
    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    job = _launch.find_job(mpi)
    assert (job.launcher, job.local, job.address) == ("Open MPI", True, None)
    slurm = {
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "8",
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "node[007-010,12],other",
    }
    job = _launch.find_job(slurm)
    assert (job.launcher, job.rank, job.size, job.address) == ("Slurm", 3, 8, "node007")
    assert job.port == _launch.find_job({**slurm, "SLURM_PROCID": "0"}).port and 20000 <= (job.port or 0) < 30000
    assert _launch.find_job({}).size == 1
    for hosts, first in (("a", "a"), ("a,b", "a"), ("n[3]", "n3"), ("n[3,5]", "n3"), ("n-1", "n-1")):
        assert _launch._first_host(hosts) == first


def test_wrong_variables() -> None:
    with pytest.raises(RuntimeError, match="not WORLD_SIZE"):
        _launch.find_job({"RANK": "0"})
    with pytest.raises(RuntimeError, match="WORLD_SIZE='two' is no number"):
        _launch.find_job({"RANK": "0", "WORLD_SIZE": "two"})
    with pytest.raises(RuntimeError, match="RANK=2 is no rank of 2"):
        _launch.find_job({"RANK": "2", "WORLD_SIZE": "2"})
    far = _launch.Job("Open MPI", 0, 1000)
    with pytest.raises(RuntimeError, match="set MASTER_ADDR"):
        _launch.exchange_id(far, 1)
    late = _launch.Job("torchrun", 1, 2, "127.0.0.1", 1)
    with pytest.raises(TimeoutError, match=r"rank 0 does not answer at 127.0.0.1:1"):
        _launch.exchange_id(late, 0.1)
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] have not come"):
        _launch.exchange_id(_launch.Job("torchrun", 0, 3, "127.0.0.1", 0), 0.2)


SUM = """
    import numpy as np, tutti
    for _ in range(2):  # a job may meet more than once
        with tutti.Communicator.from_env(timeout=30) as comm:
            print(comm.all_reduce(np.array([comm.rank + 1]))[0])
"""


def test_meeting_at_an_address() -> None:
    assert on_processes(3, SUM) == ["6\n6\n"] * 3


def test_meeting_by_a_file() -> None:
    started: list[Any] = []
    for rank in range(3):
        variables = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "3",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
            "PMIX_NAMESPACE": f"test {id(started)}",
        }
        code = 'import os\nfor name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"): del os.environ[name]\n'
        import textwrap

        started += start_processes(1, code + textwrap.dedent(SUM), **variables)
    assert [(status, out) for status, out, _ in finish(started)] == [(0, "6\n6\n")] * 3


def test_a_rank_that_never_comes() -> None:
    code = """
        import tutti
        try:
            tutti.Communicator.from_env(timeout=10)
        except (TimeoutError, tutti.TuttiError) as error:
            print(error)
    """
    ends = finish(start_processes(2, code, WORLD_SIZE="3"))
    assert ends[0][0] == 0 and "ranks [2] have not come" in ends[0][1], ends
    assert ends[1][0] == 0 and "from_id" in ends[1][1], ends  # it has the id, and waits for rank 2, or sees rank 0 end
