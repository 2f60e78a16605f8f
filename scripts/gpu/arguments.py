"""Arguments of gpu_session, looked at before anything is begun: what is wrong with one is said in a line, status 2."""

import argparse
import hashlib
import json
import math
import re
import sys
from pathlib import Path

from gpu import report


def fail(what, value, why, expected):
    """Ends gpu_session: which argument, its value, what is wrong with it, and what it should be."""
    print(" ".join(f"gpu_session: {what} {value}: {why}; expected: {expected}".split()), file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    """argparse says how everything is used before it says what is wrong."""

    def error(self, message):
        print(f"gpu_session: {message} (-h: all options)", file=sys.stderr)
        sys.exit(2)


def seconds(text):
    """A time, for argparse as well."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; expected: seconds, over 0")
    return value


def names(option, text, known, more=()):
    """The stages that an option names, by comma; `more`: other words that it knows."""
    found = text.split(",") if text else []
    for name in found:
        if name not in known and name not in more:
            words = f", or {' or '.join(more)}" if more else ""
            fail(option, text, f"no stage {name!r}", f"stages of --list, by comma{words}")
    return found


def extra(texts, known):
    """Name, seconds and command of each --extra; known: names that stages have."""
    made = []
    for text in texts:
        form = re.fullmatch(r"([\w.-]+):([^:]*):(.*\S.*)", text, re.S)
        if not form:
            fail("--extra", text, "not of that form", "NAME:SECONDS:COMMAND")
        name, time, command = form.groups()
        if name in known or name in ("failed", "all") or name in (m[0] for m in made):
            fail("--extra", text, f"the name {name!r} is taken", "a new NAME in NAME:SECONDS:COMMAND")
        try:
            made.append((name, seconds(time), command))
        except argparse.ArgumentTypeError:
            fail("--extra", text, f"{time!r} is no time", "NAME:SECONDS:COMMAND, SECONDS over 0")
    return made


def library(build, value):
    """A word for the build's library, by which results of another one are known."""
    try:
        return hashlib.sha256((build / "lib/libnccl.so.2").read_bytes()).hexdigest()[:16]
    except OSError as error:
        return fail("--build", value, f"lib/libnccl.so.2: {error.strerror}", "a build, or what --pack made of one")


def results(option, value, path):
    """Results of an earlier session. What the page cannot be made of is none."""
    expected = "the complete RESULTS.json of gpu_session"
    try:
        old = json.loads(Path(path).read_text(encoding="utf-8"))
        report.render(old)
    except OSError as error:
        fail(option, value, error.strerror, expected)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        fail(option, value, f"{Path(path).name} is cut off, or not of gpu_session", expected)
    return old
