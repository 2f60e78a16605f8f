"""Entry point of the group "torch.backends": `import torch` alone makes the back end "tutti" known."""

from typing import Any


def _create(*args: Any) -> Any:
    """Make the back end of one process group. What is missing is said here, not at every `import torch`."""
    import tutti.torch

    return tutti.torch.create(*args)


def register() -> None:
    """Make the name known to torch.distributed. Loads nothing of Tutti."""
    import torch.distributed as dist

    if dist.is_available() and "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
