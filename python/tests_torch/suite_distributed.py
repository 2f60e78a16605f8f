"""PyTorch's own multi-process suite, which its package contains, with this back end: see suite.py."""

from __future__ import annotations

import suite as _suite
from torch.testing._internal.distributed import distributed_test

# The events of a back end bear its name, which is "tutti" whatever the tests call it.
for _profiled in (
    distributed_test.PROFILING_SUPPORTED_BACKENDS,
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
):
    _profiled[:] = ["tutti"]
if _suite.NAME == "mpi":  # its tests have been chosen; from here on the name is that of the plug-in
    distributed_test.BACKEND = "tutti"


class TestTutti(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The tests that every back end of PyTorch runs."""

    def setUp(self) -> None:
        """Start one process per rank."""
        super().setUp()
        self._spawn_processes()
