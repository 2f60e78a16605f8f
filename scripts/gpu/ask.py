"""Short questions to other programs, each with a limit of time. As a program: describes a CUDA driver."""

import collections
import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

LIMIT = 30  # seconds for an answer

# code: the status, None if the command has not ended by itself; why: its stderr, or why there is no status.
Answer = collections.namedtuple("Answer", "code out why")


class NoAnswer(Exception):
    """The driver cannot be used; the text says why."""


def end_group(process):
    """Ends the command and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def ask(argv, env, left):
    """Runs a command for LIMIT seconds at most, and no longer than `left`. Returns its Answer, whatever happens."""
    seconds = max(min(LIMIT, left), 0.1)
    try:
        process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    except OSError as error:
        return Answer(None, "", f"cannot be started: {error}")
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Answer(None, "", f"no answer in {seconds:.3g} s")
        finally:
            end_group(process)
    return Answer(process.returncode, out, err.strip())


def ask_driver(library, env, left):
    """Version and devices of the driver, asked in a process of its own."""
    answer = ask([sys.executable, __file__, library], env, left)
    if answer.code == 0:
        try:
            return json.loads(answer.out.splitlines()[-1])
        except (LookupError, ValueError):
            pass
    raise NoAnswer(answer.why.splitlines()[-1] if answer.why else f"no answer, status {answer.code}")


def describe(library):
    try:
        cu = ctypes.CDLL(library)
        init, devices_of = cu.cuInit, cu.cuDeviceGetCount
    except (AttributeError, OSError) as error:
        sys.exit(str(error))
    version, count, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(128)
    if init(0) != 0 or devices_of(ctypes.byref(count)) != 0 or count.value == 0:
        sys.exit("no GPU")
    cu.cuDriverGetVersion(ctypes.byref(version))
    devices = []
    for i in range(count.value):
        cu.cuDeviceGetName(name, len(name), i)
        facts = {"name": name.value.decode()}
        for key, number in (("multiprocessors", 16), ("major", 75), ("minor", 76)):
            cu.cuDeviceGetAttribute(ctypes.byref(value), number, i)
            facts[key] = value.value
        devices.append(facts)
    simulated = any("Simulated" in d["name"] for d in devices)
    return {"library": Path(library).name, "version": version.value, "simulated": simulated, "devices": devices}


if __name__ == "__main__":
    print(json.dumps(describe(sys.argv[1])))
