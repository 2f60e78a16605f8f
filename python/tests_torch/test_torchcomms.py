"""The back end of torchcomms: its own tests, and torchcomms' integration suite, unmodified.

Both need an installed torchcomms (built with PyTorch's CPU package) and its checkout, which TORCHCOMMS_INCLUDE names.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from launchers import finish

HEADERS = os.environ.get("TORCHCOMMS_INCLUDE", "")
SUITE = Path(HEADERS) / "comms/torchcomms/tests/integration/py"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchcomms") is None or not HEADERS,
    reason="torchcomms is not installed, or TORCHCOMMS_INCLUDE does not name its checkout",
)

# In front of each program.
REFUSED = """
    def refused(text, call):
        try:
            call()
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
"""

PROGRAM = """
    import datetime, os, sys, time
    import torch, torchcomms
    from torchcomms import ReduceOp

    rank = int(os.environ["TORCHCOMM_RANK"])
    cpu = torch.device("cpu")
    comm = torchcomms.new_comm("tutti", cpu, name="main", timeout=datetime.timedelta(seconds=30))
    assert (comm.get_rank(), comm.get_size(), comm.get_backend(), comm.get_name()) == (rank, 2, "tutti", "main")

    x = torch.full((3, 5), rank + 1.0).t()  # not contiguous
    work = comm.all_reduce(x, ReduceOp.SUM, True)
    end = time.monotonic() + 20
    while not work.is_completed():  # nobody waits: the status changes all the same
        assert time.monotonic() < end
        time.sleep(0.001)
    work.wait()
    assert x.eq(3).all()
    comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5), False)
    assert x.eq(3).all()

    outputs = [torch.zeros(1 + r) for r in range(2)]
    comm.all_gather_v(outputs, torch.full((1 + rank,), rank + 1.0), False)
    assert outputs[0].eq(1).all() and outputs[1].eq(2).all()
    mine = torch.zeros(1 + rank)
    comm.reduce_scatter_v(mine, [torch.ones(1), torch.ones(2)], ReduceOp.SUM, False)
    assert mine.eq(2).all()
    rows = torch.zeros(4, 2)  # one row more than is exchanged
    comm.all_to_all_v_single(rows, torch.full((4, 2), rank + 1.0), [1 + rank, 1 + rank], [1, 2], False)
    n = 1 + rank
    assert rows[:n].eq(1).all() and rows[n : 2 * n].eq(2).all() and rows[2 * n :].eq(0).all()
    flat = torch.zeros(1, 6)  # elements count, not rows
    comm.all_to_all_single(flat, torch.arange(6.0).view(1, 6), False)
    assert torch.equal(flat[0], torch.arange(3.0).repeat(2) + 3 * rank)

    for good in (False, True):  # one bad message, and none of the batch begins
        there = torch.zeros(2)
        batch = comm.batch_op_create()
        batch.send(torch.full((2,), rank + 1.0 + 10 * good), 1 - rank)
        batch.recv(there, 1 - rank)
        if good:
            batch.issue(False)
            assert there.eq(12 - rank).all()
        else:
            batch.send(there, 5)
            refused("no peer 5", lambda batch=batch: batch.issue(False))
            assert there.eq(0).all()

    part = comm.split([rank], "alone")
    assert part.get_size() == 1 and comm.split([], "none") is None
    pair = comm.split([1, 0], "turned")
    assert pair.get_rank() == 1 - rank
    y = torch.full((2,), float(rank))
    pair.broadcast(y, 0, False)
    assert y.eq(1).all()
    refused("named twice", lambda: comm.split([0, 0], "twice"))
    refused("does not belong", lambda: comm.split([1 - rank], "other"))
    refused("on meta", lambda: comm.broadcast(torch.ones(1, device="meta"), 0, False))
    part.finalize()
    pair.finalize()
    refused("finalized", lambda: pair.barrier(False))

    def leave():  # a hook that aborts, while other operations are under way
        left.append(1)
        failing.abort()

    for asynchronous in (False, True):
        left = []
        failing = torchcomms.new_comm("tutti", cpu, name=f"fails{asynchronous}", timeout=datetime.timedelta(seconds=30))
        failing.register_abort_hook(leave)
        if rank == 0:
            works = [failing.all_reduce(torch.ones(4), ReduceOp.SUM, True) for _ in range(3)]
            if asynchronous:  # the library finds the end
                end = time.monotonic() + 20
                while not left:
                    assert time.monotonic() < end
                    time.sleep(0.001)
            else:
                limit = datetime.timedelta(milliseconds=500)
                refused("", lambda: failing.barrier(False, timeout=limit))
            assert left
            for work in works:
                refused("", work.wait)
        else:
            time.sleep(1)
            failing.abort()
        comm.barrier(False)

    told = []
    hook = comm.register_abort_hook(lambda: told.append(1))
    if rank == 0:
        options = {"timeout": datetime.timedelta(milliseconds=500)}
        refused("has not completed in", lambda: comm.barrier(False, **options))
        assert told == [1]
    else:
        time.sleep(2)
    comm.abort()
    refused("aborted" if rank else "has not completed", lambda: comm.barrier(False))
    print("done")
"""

# One-sided operations of two ranks.
WINDOWS = """
    import copy, datetime, os
    import torch, torchcomms, tutti

    rank = int(os.environ["TORCHCOMM_RANK"])
    peer = 1 - rank
    cpu = torch.device("cpu")
    comm = torchcomms.new_comm("tutti", cpu, name="main", timeout=datetime.timedelta(seconds=30))
    unified = torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED

    def mapped(count, kind):  # memory that peers map, from the middle of a page on
        return torch.frombuffer(tutti.alloc(4096 + count * kind.itemsize), dtype=kind, count=count, offset=512)

    def plain(count, kind):
        return torch.zeros(count, dtype=kind)

    def send(window, data, at, asynchronous):
        waited = window.wait_signal(peer, True) if asynchronous else None  # holds up nothing behind it
        works = [window.put(data, peer, at, asynchronous), window.signal(peer, asynchronous)]
        waited = waited if asynchronous else window.wait_signal(peer, False)
        for work in (*works, waited) if asynchronous else ():
            work.wait()

    # The last one is longer than what the window's own memory stages at a time.
    for make, count, kind in ((plain, 4, torch.float), (mapped, 1000, torch.bfloat16), (plain, 3000000, torch.int8)):
        memory = make(2 * count, kind)
        memory.fill_(9)
        window = comm.new_window(memory if make is plain else None)
        if make is mapped:
            window.tensor_register(memory)
        refused("already", lambda: window.tensor_register(memory))
        assert window.get_size() == memory.nbytes and window.get_tensor().data_ptr() == memory.data_ptr()
        mine, theirs = memory[rank * count :][:count], memory[peer * count :][:count]
        for turn in range(10):
            data = torch.full((count,), rank + turn + 1).to(kind)
            if turn % 3 == 0:  # from a window
                mine.copy_(data)
                data = mine
            send(window, data, rank * count, turn % 2 == 0)
            assert theirs.eq(peer + turn + 1).all(), turn
            comm.barrier(False)
        seen = window.map_remote_tensor(rank)
        assert seen.data_ptr() == memory.data_ptr()
        if window.get_attr(peer).access_type == unified:
            remote = window.map_remote_tensor(peer)
            assert remote.dtype == kind and remote.shape == memory.shape
            assert remote[rank * count :][:count].eq(rank + 10).all()
            comm.barrier(False)
            remote[0] = 5  # a store
            comm.barrier(False)
            assert memory[0] == 5
        else:
            assert make is plain or "NCCL_SHM_DISABLE" in os.environ
            refused("SEPARATE", lambda: window.map_remote_tensor(peer))
        refused("exceed", lambda: window.put(data, peer, count + 1, False))
        refused("exceed", lambda: window.put(data, peer, 1 << 62, False))
        refused("no rank", lambda: window.put(data, 2, 0, False))
        refused("the window of", lambda: window.put(data.to(torch.double), peer, 0, False))
        window.tensor_deregister()
        refused("has no tensor", lambda: window.signal(peer, False))

    # Each window has signals of its own; what one rank has put has arrived when the tensor is deregistered.
    first, second = comm.new_window(torch.zeros(8)), comm.new_window(torch.zeros(3 + rank))
    second.signal(peer, False)
    work = first.wait_signal(peer, True)
    second.wait_signal(peer, False)
    assert not work.is_completed()
    comm.barrier(False)
    first.signal(peer, False)
    work.wait()
    twin = copy.deepcopy(first)
    refused("shape is not known", lambda: second.map_remote_tensor(peer))
    kept, many = twin.get_tensor(), torch.arange(8.0)
    assert kept.data_ptr() != first.get_tensor().data_ptr()
    for k in range(100):
        twin.put(many + k, peer, 0, k % 2 == 0)
    twin.tensor_deregister()
    assert torch.equal(kept, many + 99)
    for _ in range(200):  # more windows than signals, one after the other
        window = comm.new_window(torch.zeros(1))
        window.signal(peer, False)
        window.wait_signal(peer, False)
        window.tensor_deregister()
    for turn in range(100):  # a rank lets go of a window alone, with a signal that nobody has waited for
        mine, ours = comm.new_window(torch.zeros(1)), comm.new_window(torch.zeros(1))
        (mine if rank else ours).signal(peer, False)
        if turn % 2 == rank:
            del mine
            mine = None
        window = comm.new_window(torch.zeros(1))
        waited = window.wait_signal(peer, True)
        comm.barrier(False)
        assert not waited.is_completed(), turn
        comm.barrier(False)
        window.signal(peer, False)
        waited.wait()
        del mine, ours
        window.tensor_deregister()
    lost = comm.new_window(torch.zeros(1))
    lost.wait_signal(peer, True)  # nobody signals
    del lost
    window = comm.new_window(torch.zeros(1))
    window.signal(peer, False)
    window.wait_signal(peer, False)
    refused("contiguous", lambda: comm.new_window(torch.zeros(4, 4).t()))
    assert comm.new_window().get_tensor() is None
    comm.barrier(False)
    limit = datetime.timedelta(milliseconds=300)
    if rank == 0:
        refused("has not completed in", lambda: first.wait_signal(1, False, timeout=limit))
    else:
        refused("", lambda: first.wait_signal(0, False))
    del first, second, twin
    comm.finalize()
    print("done")
"""

# A communicator whose members change: four processes, one of which dies.
MEMBERS = """
    import datetime, os, signal
    import torch, torchcomms
    from torch.distributed import TCPStore

    place = int(os.environ["TORCHCOMM_RANK"])
    seconds = lambda n: datetime.timedelta(seconds=n)
    store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 4, place == 0, timeout=seconds(60))
    cpu = torch.device("cpu")
    comm = torchcomms.new_comm("tutti", cpu, name="main", store=store, enable_reconfigure=True, timeout=seconds(60))
    refused("not initialized", lambda: comm.barrier(False))

    def handles(step, places):
        store.set(f"{step}/{place}", comm.get_init_handle())
        return [store.get(f"{step}/{p}").decode() for p in places]

    def check(rank, size):
        assert (comm.get_rank(), comm.get_size()) == (rank, size)
        x = torch.full((1000,), float(comm.get_rank() + 1))
        comm.all_reduce(x, torchcomms.ReduceOp.SUM, False)
        assert x.eq(size * (size + 1) / 2).all()
        if size > 1:  # messages
            y = torch.zeros(3)
            sent = comm.send(torch.full((3,), float(rank)), (rank + 1) % size, True)
            comm.recv(y, (rank - 1) % size, False)
            sent.wait()
            assert y.eq((rank - 1) % size).all()

    def change(uuid, members, order=list):
        comm.reconfigure(uuid=uuid, init_handles=order(members), timeout=seconds(30))

    change(1, handles("begin", range(4)))  # all
    check(place, 4)
    refused("used before", lambda: change(1, handles("again", range(4))))
    check(place, 4)
    refused("no handle", lambda: change(2, ["gloo:0:0:"]))
    refused("not among", lambda: change(3, handles("others", [(place + 1) % 4])))

    if place == 3:  # another order, and less: made anew
        change(10, handles("alone", [3]))
        check(0, 1)
    else:
        change(11, handles("turned", [2, 1, 0]))
        check(2 - place, 3)
    change(12, handles("grow", [2, 1, 0, 3]))  # three ranks stay, and one is new
    check([2, 1, 0, 3][place], 4)

    handles("before", range(4))
    if place == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    refused("", lambda: [comm.barrier(False) for _ in iter(int, 1)])  # until its death is noticed
    change(13, handles("shrink", [2, 0, 3]))  # without it
    check({2: 0, 0: 1, 3: 2}[place], 3)

    if place == 3:
        comm.abort()
        refused("abort", lambda: comm.barrier(False))
        assert comm.is_aborted()
    change(14, handles("set", [0, 2, 3]), set)  # the order is the back end's: the old ranks first
    check({2: 0, 0: 1, 3: 2}[place], 3)
    assert not comm.is_aborted()
    change(15, handles("same", [0, 2, 3]))
    check({0: 0, 2: 1, 3: 2}[place], 3)
    comm.finalize()
    refused("finalized", lambda: change(16, handles("late", [place])))
    store.set(f"end/{place}", "")
    for p in (0, 2, 3):
        store.get(f"end/{p}")
    print("done")
"""


# abort() of another thread ends a reconfigure() that waits for members.
STOPPED = """
    import datetime, os, threading, time
    import torch, torchcomms
    from torch.distributed import TCPStore

    place = int(os.environ["TORCHCOMM_RANK"])
    limit = datetime.timedelta(seconds=60)
    store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, place == 0, timeout=limit)
    comm = torchcomms.new_comm(
        "tutti", torch.device("cpu"), name="main", store=store, enable_reconfigure=True, timeout=limit
    )

    def handles(step, places):
        store.set(f"{step}/{place}", comm.get_init_handle())
        return [store.get(f"{step}/{p}").decode() for p in places]

    def check(size):
        x = torch.ones(5)
        comm.all_reduce(x, torchcomms.ReduceOp.SUM, False)
        assert x.eq(size).all() and comm.get_size() == size and not comm.is_aborted()

    def stopped(uuid, members):
        begun = time.monotonic()
        timer = threading.Timer(0.5, comm.abort)
        timer.start()
        refused("has been aborted", lambda: comm.reconfigure(uuid=uuid, init_handles=members))
        assert time.monotonic() - begun < 30 and comm.is_aborted()
        timer.join()
        refused("", lambda: comm.barrier(False))

    all_of_them = handles("first", range(3))
    if place != 1:
        stopped(1, all_of_them)  # made anew: one does not come
    handles("again", range(3))
    comm.reconfigure(uuid=2, init_handles=handles("anew", range(2)) if place < 2 else handles("anew", [2]))
    check(2 if place < 2 else 1)
    members = handles("grow", range(3))
    if place < 2:
        stopped(3, members)  # grows: the new one does not come
    members = handles("end", range(3))
    comm.reconfigure(uuid=4, init_handles=members)
    check(3)
    if place < 2:  # shrinks, but rank 1 does not
        members = handles("shrink", range(2))
        if place == 0:
            stopped(5, members)
        store.set(f"stopped/{place}", "")
        store.get("stopped/0")
    comm.finalize()
    for step in range(2):  # the store goes last
        store.add(f"end{step}", 1)
        while store.add(f"end{step}", 0) < 3:
            time.sleep(0.01)
    print("done")
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """The C++ part, so that no rank waits for the compiler."""
    subprocess.run([sys.executable, "-m", "tutti.torchcomms"], check=True, stdout=subprocess.DEVNULL, timeout=1800)


def _run(program: str, size: int, dies: int = -1) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    variables = os.environ | {"TORCHCOMM_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", textwrap.dedent(REFUSED) + textwrap.dedent(program)]
    ranks = [
        subprocess.Popen(
            command,
            env=variables | {"TORCHCOMM_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        texts = [process.communicate(timeout=180)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert all("done" in text for rank, text in enumerate(texts) if rank != dies), "\n".join(texts)


def test_contract() -> None:
    _run(PROGRAM, 2)


@pytest.mark.parametrize("over", [{}, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}], ids=["memory", "network"])
def test_windows(over: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in over.items():
        monkeypatch.setenv(name, value)
    _run(WINDOWS, 2)


def test_members_change() -> None:
    _run(MEMBERS, 4, dies=1)


def test_abort_ends_reconfigure() -> None:
    _run(STOPPED, 3)


# What a communicator of CPU tensors has. The other files are for GPUs, or for what the back end does not have.
FILES = """
    AllGatherSingle AllGather AllReduce AllToAllSingle AllToAll AllToAllvSingle BackendWrapperAllGatherAliased
    BackendWrapperCoalescing Barrier BatchSendRecv Broadcast C10dBatchIsendIrecv C10dTorchComm DDPComm FinalizeWarning
    FSDPComm GatherSingle Gather MultiComm ObjCol Options ReduceScatterSingle ReduceScatter Reduce Scatter SendRecv
    Split
""".split()


def _suite(path: Path, size: int) -> None:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}", "-m", "pytest"]
    variables = os.environ | {"TEST_BACKEND": "tutti", "TEST_DEVICE": "cpu", "TEST_FULL_SWEEP": "0"}
    status, out, err = finish([*run, "-q", "-p", "no:cacheprovider", str(path)], variables, 300)
    assert status == 0 and " passed" in out, out + err


# Its tests for CUDA devices and for back ends that it lists, put to CPU tensors and this one.
def test_suite_of_members() -> None:
    _suite(Path(__file__).parent / "suite_members.py", 3)


@pytest.mark.parametrize("name", FILES)
def test_suite(name: str) -> None:
    _suite(SUITE / f"{name}Test.py", 2)
