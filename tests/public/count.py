#!/usr/bin/env python3
"""count.py FORMAT FILE EXPECTED...: counts what a profiler wrote of one rank. EXPECTED: "name number"; every one must be so.

FORMAT: chrome (NVIDIA's example), inspector (lines of JSON), comma (a list, or lines, of objects)."""
import collections
import json
import sys


def chrome(text):
    """Starts of each name; each must have its end."""
    open_now = collections.Counter()
    found = collections.Counter()
    for e in json.loads(text):
        if e.get("ph") == "b":
            found[e["name"]] += 1
            open_now[e["cat"], e["name"], e["id"]] += 1
        elif e.get("ph") == "e":
            open_now[e["cat"], e["name"], e["id"]] -= 1
    left = [k for k, n in open_now.items() if n != 0]
    if left:
        sys.exit(f"starts without end, or ends without start: {left[:5]}")
    return found


def inspector(text):
    """Operations, and how their time was measured. Each one's number comes once."""
    found = collections.Counter()
    for line in text.splitlines():
        e = json.loads(line)
        kind = "coll" if "coll_perf" in e else "p2p"
        perf = e[kind + "_perf"]
        found[perf[kind]] += 1
        found[kind + str(perf[kind + "_sn"])] += 1
        if found[kind + str(perf[kind + "_sn"])] > 1:
            sys.exit(f"operation {perf[kind + '_sn']} comes twice")
        if kind == "coll":
            found[perf["coll_timing_source"]] += 1
        if perf[kind + "_exec_time_us"] < 0 or perf[kind + "_msg_size_bytes"] != (1048576 if kind == "coll" else 65536):
            sys.exit(f"an operation with nonsense: {line}")
    return found


def comma(text):
    """Operations, and the messages below them: no message may last longer than its operation."""
    found = collections.Counter()
    events = json.loads(text) if text.lstrip().startswith("[") and text.rstrip().endswith("]") else \
        [json.loads(line.strip().rstrip(",")) for line in text.splitlines() if line.strip() not in ("", "[", "]")]
    numbers = [e["seq_num"] for e in events if e["cat"] == "COLL"]
    if sorted(numbers) != list(range(len(numbers))):
        sys.exit(f"numbers of collectives have gaps, or come twice: {numbers}")
    for e in events:
        found[e["name"]] += 1
        for op in e.get("proxyops", []):
            found["ProxyOp"] += 1
            if op["dur"] > e["child_dur"]:
                sys.exit(f"messages last {op['dur']} us, their operation {e['child_dur']} us: {e}")
            for step in op.get("steps", []):
                found["step"] += 1
                found["bytes"] += step["size"]
                if step["end_time"] < step["start_time"]:
                    sys.exit(f"a message ends before it begins: {step}")
    return found


def main():
    counter = {"chrome": chrome, "inspector": inspector, "comma": comma}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as f:
        found = counter(f.read())
    wrong = []
    for expected in sys.argv[3:]:
        name, number = expected.rsplit(" ", 1)
        if found[name] != int(number):
            wrong.append(f"{name}: {found[name]} instead of {number}")
    if wrong:
        sys.exit("; ".join(wrong))
    print(", ".join(sys.argv[3:]))


main()
