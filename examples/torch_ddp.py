"""Trains a small network on the CPUs of this machine, with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/torch_ddp.py               # with Tutti
    torchrun --nproc-per-node 2 examples/torch_ddp.py --backend gloo  # with Gloo: the same losses

Needs the package tutti (docs/torch.md). One word chooses the back end; nothing else differs.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def network(width: int) -> torch.nn.Module:
    """Make the network, with the same parameters everywhere."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )


def train(steps: int, width: int) -> tuple[float, float]:
    """Give the last loss of this rank and the milliseconds per step."""
    model = DistributedDataParallel(network(width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank() + 1)  # each rank has its own part of the data
    begun = time.perf_counter()
    for _ in range(steps):
        inputs = torch.randn(32, 64, generator=data)
        labels = inputs[:, :10].argmax(1)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), (time.perf_counter() - begun) / steps * 1000


def main() -> None:
    """Read the options, train, print the loss of all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="tutti", choices=["tutti", "gloo"])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    if options.backend == "tutti":
        import tutti.torch  # noqa: F401  (registers the back end)
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    loss, milliseconds = train(options.steps, options.width)
    mean = torch.tensor(loss)
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"{options.backend}: loss {mean.item() / dist.get_world_size():.6f}, {milliseconds:.2f} ms per step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
