"""torchrun: Communicator.from_env on one host and on two; a rank that is killed, and the restart after it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from launchers import check, start, two_hosts, write_program
from test_training import torchrun_loss

RUN = (sys.executable, "-m", "torch.distributed.run")


def test_one_host(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    check(program, start(program, *RUN, "--standalone", "--nproc-per-node=2"))


def test_two_hosts(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    common = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=10.79.0.1", "--master-port=29400")
    with two_hosts() as hosts:
        check(program, *[start(program, *on, *RUN, *common, f"--node-rank={n}") for n, on in enumerate(hosts)])


# The example's training; in the first attempt rank 1 is killed in its tenth step, and tells when.
KILLED = """
    import os, runpy, signal, sys, time
    import torch.distributed as dist

    folder, example = sys.argv[1], sys.argv[2]
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    names = runpy.run_path(example)
    step = names["torch"].nn.functional.cross_entropy
    calls = 0
    if (rank, attempt) == ("0", "0"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun may see the death first; this rank still tells

    def loss(*args):
        global calls
        calls += 1
        if (rank, attempt, calls) == ("1", "0", 10):
            with open(f"{folder}/killed", "w") as file:
                file.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*args)

    names["torch"].nn.functional.cross_entropy = loss
    sys.argv = [example, "--steps", "20"]
    try:
        names["main"]()
    except RuntimeError as error:
        with open(f"{folder}/error-{rank}-{attempt}", "w") as file:
            file.write(f"{time.monotonic()} {error}")
        raise
"""


def test_restart(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(KILLED))
    loss, output = torchrun_loss("--standalone", "--max-restarts=2", "--monitor-interval=5", str(path), str(tmp_path))
    killed = float((tmp_path / "killed").read_text())
    noticed, text = (tmp_path / "error-0-0").read_text().split(" ", 1)
    assert float(noticed) - killed < 10 and re.search(r"rank 1.*(killed|died|ended|gone)", text), text
    assert not list(tmp_path.glob("error-*-1")), "the second attempt has failed"
    expected, _ = torchrun_loss("--standalone", options=("--steps", "20"))
    assert loss == expected, output


def test_bench() -> None:
    command = (sys.executable, "-m", "tutti.torch.bench", "-b", "8", "4096", "-r", "2", "-c", "20")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(?m)^(\d+) B, (.+?) {2,}([\d.]+) +([\d.]+) +([\d.]+) +(-?[\d.]+)$", done.stdout)
    assert [size for size, *_ in rows] == ["8"] * 5 + ["4096"] and all(float(row[2]) > 0 for row in rows), done.stdout
