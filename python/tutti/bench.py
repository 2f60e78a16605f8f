"""python -m tutti.bench: times of collectives on NumPy arrays: Tutti, and mpi4py and Gloo (through PyTorch) where they
are installed. Each library has processes of its own; for every operation and size the libraries take turns, while the
others sleep. Times are medians over rounds, of the slowest rank, in microseconds."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
LIBRARIES = ["tutti", "mpi4py", "gloo"]
ROUNDS = 5  # 3 of large arrays
SECONDS = 0.06  # for each operation, size and round
KEPT = 64 << 20  # bytes: larger arrays are made anew for each round, so that sleeping processes do not keep them
Maker = Callable[[str, Any, Any], Callable[[], object]]
Row = tuple[str, int, str, int, float]  # library, ranks, operation, size, microseconds


# ---- One rank of one library ----


def _arrays(operation: str, size: int, ranks: int) -> tuple[Any, Any]:
    """`size`: bytes of the larger side, as in nccl-tests."""
    import numpy

    count = max(size // 4 // ranks * ranks, ranks)
    send = count // ranks if operation == "all_gather" else count
    recv = count // ranks if operation == "reduce_scatter" else count
    return numpy.ones(send, "f4"), numpy.ones(recv, "f4")


def _open_tutti() -> tuple[int, int, Maker, Callable[[float], float], Callable[[], None]]:
    import numpy

    import tutti

    comm = tutti.Communicator.from_env(timeout=60)

    def make(operation: str, send: Any, recv: Any) -> Callable[[], object]:
        call = getattr(comm, operation)
        return (lambda: call(send)) if operation == "broadcast" else lambda: call(send, recv)

    def worst(value: float) -> float:
        return float(comm.all_reduce(numpy.array([value]), op=tutti.Op.MAX)[0])

    return comm.rank, comm.size, make, worst, comm.close


def _open_mpi4py() -> tuple[int, int, Maker, Callable[[float], float], Callable[[], None]]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def make(operation: str, send: Any, recv: Any) -> Callable[[], object]:
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: comm.Allreduce(send, recv),
            "all_gather": lambda: comm.Allgather(send, recv),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(send, recv),
            "all_to_all": lambda: comm.Alltoall(send, recv),
            "broadcast": lambda: comm.Bcast(send),
        }
        return calls[operation]

    return comm.rank, comm.size, make, lambda value: float(comm.allreduce(value, MPI.MAX)), lambda: None


def _open_gloo() -> tuple[int, int, Maker, Callable[[float], float], Callable[[], None]]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.set_num_threads(1)

    def make(operation: str, send: Any, recv: Any) -> Callable[[], object]:
        s, r = torch.from_numpy(send), torch.from_numpy(recv)
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(s),
            "all_gather": lambda: dist.all_gather_into_tensor(r, s),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(r, s),
            "all_to_all": lambda: dist.all_to_all_single(r, s),
            "broadcast": lambda: dist.broadcast(s, 0),
        }
        return calls[operation]

    def worst(value: float) -> float:
        x = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return float(x)

    return dist.get_rank(), dist.get_world_size(), make, worst, dist.destroy_process_group


_OPEN = {"tutti": _open_tutti, "mpi4py": _open_mpi4py, "gloo": _open_gloo}


class _Case:
    """One operation with one size, on one rank."""

    def __init__(self, call: Callable[[], object], worst: Callable[[float], float]) -> None:
        self.call, self.worst = call, worst
        call()
        start = time.perf_counter()
        call()
        once = worst(time.perf_counter() - start)
        self.count = max(1, min(2000, int(SECONDS / max(once, 1e-7))))

    def measure(self) -> float:
        """Microseconds of a call of the slowest rank."""
        if self.count > 1:
            self.call()  # it may have slept
        self.worst(0.0)  # all begin together
        start = time.perf_counter()
        for _ in range(self.count):
            self.call()
        return self.worst((time.perf_counter() - start) / self.count) * 1e6


def _rank_main(library: str, path: str) -> None:
    """Measure what the command asks for, until it asks for nothing more; rank 0 answers."""
    rank, ranks, make, worst, close = _OPEN[library]()
    cores = sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):  # mpirun does so itself
        os.sched_setaffinity(0, {cores[rank]})
    case: _Case | None = None
    last: tuple[str, int] | None = None
    with Client(path) as command:
        command.send(rank)
        while (wanted := command.recv()) is not None:
            operation, size = wanted
            took = None
            try:
                if case is None or wanted != last:
                    case = None  # its arrays go first
                    case, last = _Case(make(operation, *_arrays(operation, size, ranks)), worst), wanted
                took = case.measure()
            except RuntimeError:  # an operation that the library does not have: on all ranks
                case = None
            if size > KEPT:
                case = None
            if rank == 0:
                command.send(took)
    close()


# ---- The command ----


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _installed(library: str) -> str | None:
    """None: it can run. Else why not."""
    if importlib.util.find_spec("numpy") is None:
        return "numpy is not installed"
    if library == "mpi4py" and (importlib.util.find_spec("mpi4py") is None or shutil.which("mpirun") is None):
        return "mpi4py or mpirun is not installed"
    if library == "gloo" and importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return None


def _commands(library: str, ranks: int, path: str) -> list[tuple[list[str], dict[str, str]]]:
    program = [sys.executable, "-m", "tutti.bench", "--rank-of", library, path]
    if library == "mpi4py":
        return [(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *program], {})]
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    return [(program, {**place, "RANK": str(rank)}) for rank in range(ranks)]


class _Team:
    """The processes of one library."""

    def __init__(self, library: str, ranks: int, folder: str) -> None:
        self.library, self.ranks, self.failed = library, ranks, False
        self.connections: dict[int, Connection] = {}
        self.errors = open(f"{folder}/{library}-{ranks}.log", "w+", encoding="utf-8")  # noqa: SIM115
        path = f"{folder}/{library}-{ranks}"
        with Listener(path) as listener:
            self.started = [
                subprocess.Popen(command, env={**os.environ, **env}, stdout=self.errors, stderr=self.errors)
                for command, env in _commands(library, ranks, path)
            ]
            self._accept(listener)

    def _accept(self, listener: Listener) -> None:
        listener._listener._socket.settimeout(120)  # type: ignore[attr-defined]
        try:
            for _ in range(self.ranks):
                connection = listener.accept()
                self.connections[connection.recv()] = connection
        except (OSError, EOFError):
            self._fail("its processes have not come")

    def _fail(self, why: str) -> None:
        self.failed = True
        self.errors.flush()
        self.errors.seek(0)
        text = self.errors.read()[-1500:]
        print(f"{self.library} with {self.ranks} ranks has failed, {why}:\n{text}", file=sys.stderr)

    def measure(self, operation: str, size: int, limit: float) -> float | None:
        """Microseconds, or None where there is no time."""
        if self.failed:
            return None
        try:
            for connection in self.connections.values():
                connection.send((operation, size))
            if self.connections[0].poll(limit):
                took: float | None = self.connections[0].recv()
                return took
            self._fail(f"{operation} of {_text(size)} takes more than {limit:g} s")
        except (OSError, EOFError):
            self._fail(f"a process has ended in {operation} of {_text(size)}")
        return None

    def close(self) -> None:
        for connection in [] if self.failed else self.connections.values():
            connection.send(None)
        for process in self.started:
            try:
                process.wait(0.1 if self.failed else 30)
            except subprocess.TimeoutExpired:
                process.terminate()  # mpirun ends its ranks
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for connection in self.connections.values():
            connection.close()
        self.errors.close()


def _measure(libraries: list[str], ranks: int, operations: list[str], sizes: list[int], limit: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        teams = [_Team(library, ranks, folder) for library in libraries]
        rows: list[Row] = []
        try:
            for operation in operations:
                for size in sizes:
                    times: dict[str, list[float]] = {library: [] for library in libraries}
                    for number in range((ROUNDS if size <= KEPT else 3) * len(teams)):
                        team = teams[number % len(teams)]
                        took = team.measure(operation, size, limit)
                        times[team.library] += [] if took is None else [took]
                    rows += [(k, ranks, operation, size, statistics.median(v)) for k, v in times.items() if v]
        finally:
            for team in teams:
                team.close()
    return rows


def _text(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def ratios(rows: list[Row], library: str) -> list[float]:
    """The library's times over ours, where there are both."""
    ours = {row[1:4]: row[4] for row in rows if row[0] == "tutti"}
    return [row[4] / ours[row[1:4]] for row in rows if row[0] == library and row[1:4] in ours]


def _figure(took: float | None) -> str:
    """Three digits that count."""
    return "" if took is None else f"{took:.3g}" if took < 999.5 else f"{float(f'{took:.3g}'):.0f}"


def _mean(values: list[float]) -> str:
    return f"{statistics.geometric_mean(values):.2f}" if values else ""


def table(rows: list[Row], libraries: list[str]) -> str:
    """A table for each operation, in Markdown, with the geometric mean of the others' times over ours."""
    lines = []
    for operation in dict.fromkeys(row[2] for row in rows):
        mine = [row for row in rows if row[2] == operation]
        sizes = sorted({row[3] for row in mine})
        times = {(*row[:2], row[3]): row[4] for row in mine}
        lines += ["", f"| {operation}, us | ranks | " + " | ".join(map(_text, sizes)) + " | mean ratio |"]
        lines.append("|---" * (len(sizes) + 3) + "|")
        for ranks in sorted({row[1] for row in mine}):
            for library in libraries:
                cells = [times.get((library, ranks, size)) for size in sizes]
                shown = " | ".join(map(_figure, cells))
                mean = _mean(ratios([row for row in mine if row[1] == ranks], library))
                lines.append(f"| {library} | {ranks} | {shown} | {mean} |")
    return "\n".join(lines)


def summary(rows: list[Row], libraries: list[str]) -> str:
    """The geometric means of the others' times over ours: one line for each library, and one column for each number of
    ranks."""
    counts = sorted({row[1] for row in rows})
    lines = ["", "| time over tutti's | " + " | ".join(f"{ranks} ranks" for ranks in counts) + " | all |"]
    lines.append("|---" * (len(counts) + 2) + "|")
    for library in libraries:
        if library != "tutti":
            cells = [_mean(ratios([row for row in rows if row[1] == ranks], library)) for ranks in counts]
            lines.append(f"| {library} | {' | '.join(cells)} | {_mean(ratios(rows, library))} |")
    return "\n".join(lines) if len(lines) > 3 else ""


_COLOURS = {"tutti": "#1b6ca8", "mpi4py": "#c8553d", "gloo": "#588157"}
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 220, 52, 30


def _duration(decade: int) -> str:
    """Ten to this power, of microseconds."""
    unit = min(max(decade // 3, -1), 2)
    return f"{10.0 ** (decade - 3 * unit):g} {('ns', 'µs', 'ms', 's')[unit + 1]}"


def _panel(mine: list[Row], x0: int, y0: int, title: str) -> list[str]:
    """One diagram, both axes logarithmic: bytes against time."""
    low, high = math.log2(min(row[3] for row in mine)), math.log2(max(row[3] for row in mine) + 1)
    floor = math.floor(math.log10(min(row[4] for row in mine)))
    ceiling = math.ceil(math.log10(max(row[4] for row in mine)) + 1e-9)
    wide, tall = _WIDTH - _LEFT - 20, _HEIGHT - _TOP - 30

    def point(size: int, took: float) -> tuple[float, float]:
        x = x0 + _LEFT + wide * (math.log2(size) - low) / max(high - low, 1e-9)
        return x, y0 + _TOP + tall * (1 - (math.log10(took) - floor) / max(ceiling - floor, 1))

    parts = [f'<text x="{x0 + _LEFT}" y="{y0 + _TOP - 10}" font-weight="bold">{title}</text>']
    for decade in range(floor, ceiling + 1):
        y = point(int(2**low), 10.0**decade)[1]
        parts.append(f'<line x1="{x0 + _LEFT}" x2="{x0 + _LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 + _LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{_duration(decade)}</text>')
    sizes = sorted({row[3] for row in mine})
    for size in sizes[:: max(1, math.ceil(len(sizes) / 4))]:
        x = point(size, 10.0**floor)[0]
        parts.append(f'<text x="{x:.1f}" y="{y0 + _HEIGHT - 14}" text-anchor="middle">{_text(size)}</text>')
    for library, colour in _COLOURS.items():
        points = [point(row[3], row[4]) for row in mine if row[0] == library]
        if points:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    return parts


def picture(rows: list[Row]) -> str:
    """The times as SVG, time over bytes: a column for each operation, a row for each number of ranks."""
    operations = list(dict.fromkeys(row[2] for row in rows))
    counts = sorted({row[1] for row in rows})
    width, height = _WIDTH * len(operations), _HEIGHT * len(counts) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for line, ranks in enumerate(counts):
        for column, operation in enumerate(operations):
            mine = [row for row in rows if row[1] == ranks and row[2] == operation]
            title = f"{operation}, {ranks} ranks"
            parts += _panel(mine, _WIDTH * column, _HEIGHT * line, title) if mine else []
    for number, (library, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 70 * number
        parts.append(f'<text x="{x}" y="{height - 8}" fill="{colour}" font-weight="bold">{library}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _sizes(low: int, high: int, factor: int) -> list[int]:
    sizes = [low]
    while sizes[-1] * factor <= high:
        sizes.append(sizes[-1] * factor)
    return sizes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tutti.bench", description=__doc__)
    parser.add_argument(
        "-n", "--ranks", type=int, nargs="+", default=[2], help="processes; several numbers: one run for each (2)"
    )
    parser.add_argument("-o", "--operations", nargs="+", choices=OPERATIONS, default=OPERATIONS)
    parser.add_argument("-l", "--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("-b", "--begin", type=int, default=8, help="smallest size in bytes (8)")
    parser.add_argument("-e", "--end", type=int, default=8 << 20, help="largest size in bytes (8 MiB)")
    parser.add_argument("-f", "--factor", type=int, default=32, help="from size to size (32)")
    parser.add_argument("--picture", metavar="FILE.svg", help="also draws the times")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one time (60)")
    parser.add_argument("--rank-of", nargs=2, metavar=("LIBRARY", "PATH"), help=argparse.SUPPRESS)
    return parser


def main() -> int:
    parser = _parser()
    a = parser.parse_args()
    if min(a.ranks) < 1 or a.begin < 4 or a.end < a.begin or a.factor < 2:
        parser.error("needs ranks >= 1, 4 <= begin <= end, factor >= 2")
    if a.picture and not a.picture.endswith(".svg"):
        parser.error("--picture: the file's name must end in .svg")
    if a.picture and not os.access(os.path.dirname(a.picture) or ".", os.W_OK):
        parser.error(f"--picture: no file can be made in {os.path.dirname(a.picture) or 'this folder'}")
    if not 0 < a.limit < math.inf:
        parser.error("--limit: needs a number of seconds above 0")
    if a.rank_of:
        _rank_main(*a.rank_of)
        return 0
    missing = {library: _installed(library) for library in a.libraries}
    for library, why in missing.items():
        print(f"{library}: {why or 'takes part'}", flush=True)
    present = [library for library, why in missing.items() if why is None]
    rows: list[Row] = []
    for ranks in a.ranks:
        rows += _measure(present, ranks, a.operations, _sizes(a.begin, a.end, a.factor), a.limit)
    used = [library for library in present if any(row[0] == library for row in rows)]
    print(f"\nfloat32, {os.cpu_count()} cores, medians of {ROUNDS} rounds, above {_text(KEPT)} of 3")
    print(table(rows, used), summary(rows, used), sep="\n")
    if a.picture and rows:
        with open(a.picture, "w", encoding="utf-8") as file:
            file.write(picture(rows))
    return 0 if "tutti" in used else 1


if __name__ == "__main__":
    sys.exit(main())
