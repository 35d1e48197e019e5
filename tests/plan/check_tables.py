#!/usr/bin/env python3
"""Compares the CUDA kernels' time functions with the recorded tables and random shapes of an H200.

    check_tables.py BUILD/tests/plan/kernel_times bench/recorded [--all]

Of all recorded times over 100 us: 9 in 10 must be within 25 % of what the kernel says. Of all shapes that several kernels
were recorded for: prints what the kernel that estimates choose took, over the best of those that are as accurate. --all
prints each row that is further off. Exit status: 0 right, 1 wrong.
"""
import glob
import json
import os
import subprocess
import sys

LEAST_US = 100
CLOSE = 0.25
SHARE = 0.9
INEXACT = "may have larger errors"


def read_rows(folder):
    """[(op, dtype, precision, shape, kernel), median_us, mode, whether it is as accurate as was asked for]"""
    rows = []
    for path in sorted(glob.glob(os.path.join(folder, "h200-*.json"))):
        with open(path) as f:
            table = json.load(f)
        if "times" in table:  # random shapes: fields of a row are named once
            rows += [((op, dtype, precision, shape, kernel), us, "random", accurate)
                     for op, dtype, precision, shape, kernel, us, accurate in table["times"]]
        for row in table.get("rows", []):  # some record other things
            if row["measured"]:
                what = (table["op"], table["dtype"], table["precision"], row["shape"], row["kernel"])
                rows.append((what, row["median_us"], row["mode"], INEXACT not in row["why"]))
    return rows


def ask(program, lines):
    run = subprocess.run([program], input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.split()


def check_times(program, rows, show_all):
    long_rows = [(what, us) for what, us, _, _ in rows if us > LEAST_US]
    said = ask(program, ["time " + " ".join(what) for what, _ in long_rows])
    errors = [(float(ns) / 1e3 / us - 1, what, us) for ns, (what, us) in zip(said, long_rows)]
    far = [e for e in errors if not abs(e[0]) <= CLOSE]
    for error, what, us in sorted(far if show_all else []):
        print(f"  {' '.join(what)}: {us:.1f} us, off by {100 * error:+.0f} %")
    for op in sorted({what[0] for _, what, _ in errors}):
        of_op = [e for e in errors if e[1][0] == op]
        print(f"  {op}: {sum(abs(e[0]) <= CLOSE for e in of_op)} of {len(of_op)}")
    near = len(errors) - len(far)
    print(f"recorded times over {LEAST_US} us: {near} of {len(errors)} estimated to {100 * CLOSE:.0f} %")
    return near >= SHARE * len(errors)


def check_choices(program, rows):
    shapes = {}
    for what, us, mode, accurate in rows:
        if accurate:
            shapes.setdefault((what[:4], mode), {}).setdefault(what[4], us)
    shapes = {shape: times for shape, times in shapes.items() if len(times) > 1}
    chosen = ask(program, ["choose " + " ".join(what) for what, _ in shapes])
    losses = []
    for ((what, mode), times), kernel in zip(shapes.items(), chosen):
        best = min(times.values())
        losses.append((times[kernel] / best - 1 if kernel in times else float("nan"), what, mode, kernel))
    known = sorted((loss for loss in losses if loss[0] == loss[0]), reverse=True)
    print(f"choices by estimates: {sum(loss[0] <= 0.05 for loss in known)} of {len(known)} within 5 % of the best recorded, "
          f"mean loss {100 * sum(loss[0] for loss in known) / len(known):.1f} %; not recorded: {len(losses) - len(known)}")
    for loss, what, mode, kernel in known[:6]:
        if loss > 0.05:
            print(f"  {' '.join(what)} {mode}: {kernel}, +{100 * loss:.0f} %")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = read_rows(sys.argv[2])
    right = True
    for name, of_name in (("tables", [r for r in rows if r[2] != "random"]), ("random shapes", [r for r in rows if r[2] == "random"])):
        print(f"{name}:")
        right &= check_times(sys.argv[1], of_name, "--all" in sys.argv)
        check_choices(sys.argv[1], of_name)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
