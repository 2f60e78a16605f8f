"""python -m tutti.bench: times of collectives on NumPy arrays: Tutti, and mpi4py and Gloo (through PyTorch) where they
are installed. Each library runs in processes of its own, one after the other; times are medians over rounds, of the
slowest rank, in microseconds."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
LIBRARIES = ["tutti", "mpi4py", "gloo"]
SECONDS = 0.3  # for each operation and size
Maker = Callable[[str, Any, Any], Callable[[], object]]


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


def _measure(call: Callable[[], object], worst: Callable[[float], float]) -> float:
    """Microseconds of a call: median of five rounds."""
    for _ in range(3):
        call()
    start = time.perf_counter()
    call()
    once = worst(time.perf_counter() - start)
    count = max(1, min(2000, int(SECONDS / 5 / max(once, 1e-7))))
    rounds = []
    for _ in range(5):
        worst(0.0)  # all begin together
        start = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append(worst((time.perf_counter() - start) / count))
    return sorted(rounds)[2] * 1e6


def _rank_main(library: str, operations: list[str], sizes: list[int]) -> None:
    rank, ranks, make, worst, close = _OPEN[library]()
    for operation in operations:
        for size in sizes:
            call = make(operation, *_arrays(operation, size, ranks))
            try:
                took = _measure(call, worst)
            except RuntimeError:  # an operation that the library does not have: on all ranks
                break
            if rank == 0:
                print(json.dumps([library, operation, size, took]), flush=True)
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


def _commands(library: str, ranks: int, rest: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    program = [sys.executable, "-m", "tutti.bench", "--rank-of", library, *rest]
    if library == "mpi4py":
        return [(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *program], {})]
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    return [(program, {**place, "RANK": str(rank)}) for rank in range(ranks)]


def _run(library: str, ranks: int, rest: list[str], limit: float) -> list[tuple[str, str, int, float]]:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = [
            subprocess.Popen(command, env={**os.environ, **env}, stdout=output, stderr=errors)
            for command, env in _commands(library, ranks, rest)
        ]
        end = time.monotonic() + limit
        try:
            failed = any(process.wait(max(0.1, end - time.monotonic())) for process in started)
        except subprocess.TimeoutExpired:
            failed = True
        for process in started:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        if failed:
            print(f"{library} has failed:\n{errors.read()[-1500:]}", file=sys.stderr)
        lines = [line for line in output.read().splitlines() if line.startswith("[")]
    return [(row[0], row[1], row[2], row[3]) for row in map(json.loads, lines)]


def _text(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def table(rows: list[tuple[str, str, int, float]], libraries: list[str]) -> str:
    """A table for each operation, in Markdown, with the geometric mean of the others' times over ours."""
    times = {(library, operation, size): took for library, operation, size, took in rows}
    lines = []
    for operation in dict.fromkeys(row[1] for row in rows):
        sizes = sorted({row[2] for row in rows if row[1] == operation})
        lines += ["", f"| {operation}, us | " + " | ".join(map(_text, sizes)) + " | mean ratio |"]
        lines.append("|---" * (len(sizes) + 2) + "|")
        for library in libraries:
            cells = [times.get((library, operation, size)) for size in sizes]
            pairs = [(cell, times.get(("tutti", operation, size))) for cell, size in zip(cells, sizes, strict=True)]
            logs = [math.log(theirs / ours) for theirs, ours in pairs if theirs and ours]
            mean = f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else ""
            shown = " | ".join("" if cell is None else f"{cell:.3g}" for cell in cells)
            lines.append(f"| {library} | {shown} | {mean} |")
    return "\n".join(lines)


_COLOURS = {"tutti": "#1b6ca8", "mpi4py": "#c8553d", "gloo": "#588157"}
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 220, 46, 30


def _panel(rows: list[tuple[str, str, int, float]], x0: int, operation: str) -> list[str]:
    """One diagram, both axes logarithmic: bytes against microseconds."""
    mine = [row for row in rows if row[1] == operation]
    low, high = math.log2(min(row[2] for row in mine)), math.log2(max(row[2] for row in mine) + 1)
    floor = math.floor(math.log10(min(row[3] for row in mine)))
    ceiling = math.ceil(math.log10(max(row[3] for row in mine)) + 1e-9)
    wide, tall = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - 30

    def point(size: int, took: float) -> str:
        x = x0 + _LEFT + wide * (math.log2(size) - low) / max(high - low, 1e-9)
        y = _TOP + tall * (1 - (math.log10(took) - floor) / max(ceiling - floor, 1))
        return f"{x:.1f},{y:.1f}"

    parts = [f'<text x="{x0 + _LEFT}" y="{_TOP - 10}" font-weight="bold">{operation}</text>']
    for decade in range(floor, ceiling + 1):
        y = point(int(2**low), 10.0**decade).split(",")[1]
        parts.append(f'<line x1="{x0 + _LEFT}" x2="{x0 + _WIDTH - 10}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 + _LEFT - 4}" y="{y}" text-anchor="end">{10.0**decade:g}</text>')
    for size in sorted({row[2] for row in mine})[:: max(1, len({row[2] for row in mine}) // 3)]:
        x = point(size, 10.0**floor).split(",")[0]
        parts.append(f'<text x="{x}" y="{_HEIGHT - 12}" text-anchor="middle">{_text(size)}</text>')
    for library, colour in _COLOURS.items():
        points = " ".join(point(size, took) for name, _, size, took in mine if name == library)
        if points:
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def picture(rows: list[tuple[str, str, int, float]]) -> str:
    """The times as SVG: a diagram for each operation, microseconds over bytes."""
    operations = list(dict.fromkeys(row[1] for row in rows))
    width = _WIDTH * len(operations)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + 20}" width="{width}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{_HEIGHT + 20}" fill="white"/>',
    ]
    for number, operation in enumerate(operations):
        parts += _panel(rows, _WIDTH * number, operation)
    for number, (library, colour) in enumerate(_COLOURS.items()):
        parts.append(f'<text x="{_LEFT + 70 * number}" y="{_HEIGHT + 12}" fill="{colour}">{library}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _sizes(low: int, high: int, factor: int) -> list[int]:
    sizes = [low]
    while sizes[-1] * factor <= high:
        sizes.append(sizes[-1] * factor)
    return sizes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tutti.bench", description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("-o", "--operations", nargs="+", choices=OPERATIONS, default=OPERATIONS)
    parser.add_argument("-l", "--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("-b", "--begin", type=int, default=8, help="smallest size in bytes (8)")
    parser.add_argument("-e", "--end", type=int, default=8 << 20, help="largest size in bytes (8 MiB)")
    parser.add_argument("-f", "--factor", type=int, default=32, help="from size to size (32)")
    parser.add_argument("--picture", metavar="FILE.svg", help="also draws the times")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each library (600)")
    parser.add_argument("--rank-of", choices=LIBRARIES, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    parser = _parser()
    a = parser.parse_args()
    if a.ranks < 1 or a.begin < 4 or a.end < a.begin or a.factor < 2:
        parser.error("needs ranks >= 1, 4 <= begin <= end, factor >= 2")
    if a.picture and not a.picture.endswith(".svg"):
        parser.error("--picture: the file's name must end in .svg")
    if a.rank_of:
        _rank_main(a.rank_of, a.operations, _sizes(a.begin, a.end, a.factor))
        return 0
    rest = ["-o", *a.operations, "-b", str(a.begin), "-e", str(a.end), "-f", str(a.factor)]
    rows, used = [], []
    for library in a.libraries:
        missing = _installed(library)
        found = _run(library, a.ranks, rest, a.limit) if missing is None else []
        print(f"{library}: {missing or f'{len(found)} times'}")
        rows += found
        used += [library] if found else []
    print(f"\n{a.ranks} processes, {os.cpu_count()} cores, float32, microseconds{table(rows, used)}")
    if a.picture and rows:
        with open(a.picture, "w", encoding="utf-8") as file:
            file.write(picture(rows))
    return 0 if "tutti" in used else 1


if __name__ == "__main__":
    sys.exit(main())
