"""Data-parallel training in miniature: every rank fits the same line to its own points, and all average their
gradients."""

import numpy as np

import tutti

STEPS, RATE = 200, 0.1


def points(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """This rank's share of the data: y = 3 x + 1 with noise."""
    random = np.random.default_rng(rank)
    x = random.uniform(-1, 1, 1000)
    return x, 3 * x + 1 + random.normal(0, 0.1, x.size)


def gradient(line: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean square error."""
    error = line[0] * x + line[1] - y
    return np.array([(error * x).mean(), error.mean()])


def train(comm: tutti.Communicator) -> np.ndarray:
    line = np.zeros(2)
    x, y = points(comm.rank)
    for _ in range(STEPS):
        step = gradient(line, x, y)
        comm.all_reduce(step, op=tutti.Op.AVG)  # in place; the same bits on every rank
        line -= RATE * step
    return line


def main() -> None:
    with tutti.Communicator.from_env(timeout=60) as comm:
        line = train(comm)
        lines = np.zeros((comm.size, 2))
        comm.all_gather(line, lines)
        assert (lines == line).all(), "the ranks differ"
        if comm.rank == 0:
            print(f"{comm.size} ranks: y = {line[0]:.2f} x + {line[1]:.2f}, the same on every rank")


if __name__ == "__main__":
    main()
