"""PyTorch's own multi-process suite, which its package contains, with this back end.

    python -m pytest suite_distributed.py -k "all_reduce or broadcast"

It needs expecttest. Each test starts three processes, which takes ten seconds and more.
Not among the tests that run by themselves: the whole suite takes long.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("BACKEND", "tutti")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="tutti-suite-"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

from torch.testing._internal.distributed import distributed_test as suite

import tutti.torch  # noqa: F401  (registers the back end, in the spawned processes too)

# Tests that the suite has for back ends of CPUs ask for Gloo or MPI by name; so do lists of features.
for _feature in suite.DistTestCases.backend_feature.values():
    if "gloo" in _feature:
        _feature.add("tutti")


class TestTutti(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """The tests that every back end of PyTorch runs."""

    def setUp(self) -> None:
        """Start one process per rank."""
        super().setUp()
        self._spawn_processes()
