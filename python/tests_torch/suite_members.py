"""torchcomms' tests of reconfigure, as they are, with this back end and CPU tensors put in by a subclass."""

from __future__ import annotations

import importlib.util
import os
from datetime import timedelta
from pathlib import Path

import torch

_FILE = Path(os.environ["TORCHCOMMS_INCLUDE"]) / "comms/torchcomms/tests/integration/py/ReconfigureTest.py"
_SPEC = importlib.util.spec_from_file_location("ReconfigureTest", _FILE)
assert _SPEC is not None and _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)


class MembersTest(_MODULE.ReconfigureTest):  # type: ignore[name-defined]
    SUPPORTED_BACKENDS = frozenset({"tutti"})
    store_of_all: torch.distributed.TCPStore | None = None

    def setUp(self) -> None:
        self.backend = "tutti"
        self.device = torch.device("cpu")
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if MembersTest.store_of_all is None:
            MembersTest.store_of_all = torch.distributed.TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                self.world_size,
                False,
                timeout=timedelta(seconds=60),
            )
        self.store = torch.distributed.PrefixStore("members", MembersTest.store_of_all)
