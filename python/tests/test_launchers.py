"""Communicator.from_env under real launchers. torchrun: tests_torch."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from launchers import check, start, two_hosts, write_program


@pytest.mark.parametrize(
    ("name", "package", "options"),
    [("openmpi", "openmpi-bin", ("--allow-run-as-root", "--oversubscribe")), ("mpich", "mpich", ())],
    ids=str,
)
def test_mpirun(tmp_path: Path, name: str, package: str, options: tuple[str, ...]) -> None:
    found = shutil.which(f"mpirun.{name}")
    if found is None:
        pytest.skip(f"mpirun was not started: there is no mpirun.{name} (Debian: package {package})")
    program = write_program(tmp_path)
    check(program, start(program, found, *options, "-n", "2", sys.executable))


def test_srun(tmp_path: Path) -> None:
    found = shutil.which("srun")
    if found is None or "SLURM_JOB_ID" not in os.environ:
        pytest.skip("srun was not started: this is no job of Slurm, or tests/python.sh has unset its variables")
    program = write_program(tmp_path)
    check(program, start(program, found, "-n", "2", sys.executable, keep=True))


def test_variables_of_srun(tmp_path: Path) -> None:
    """The variables that srun sets for two tasks of a node; srun itself is not started."""
    common = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "1",
        "SLURM_STEP_NODELIST": "localhost",
    }
    program = write_program(tmp_path)
    check(program, *[start(program, sys.executable, more={**common, "SLURM_PROCID": str(r)}) for r in range(2)])


def test_two_hosts(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29400"}
    with two_hosts() as hosts:
        ranks = [start(program, *on, sys.executable, more={**common, "RANK": str(r)}) for r, on in enumerate(hosts)]
        check(program, *ranks)
