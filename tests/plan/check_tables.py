#!/usr/bin/env python3
"""Compares plans and choices with the recorded tables and random shapes of an H200.

    check_tables.py BUILD/tests/plan/kernel_times bench/recorded [--all] [--write docs/design.md]

Of all recorded times over 100 us: for 9 in 10, what a job of that op alone is planned to take on the device must be within
25 %. Of all shapes that several kernels were recorded for: prints what the kernel that estimates choose took, over the best of
those that are as accurate. --all prints each row that is further off. --write puts the numbers into a page, between
<!-- estimates --> and <!-- /estimates -->. Exit status: 0 right, 1 wrong.
"""
import argparse
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from recording import files

LEAST_US = 100
CLOSE = 0.25
SHARE = 0.9
MUCH = 0.05


def read_rows(folder):
    """[(op, dtype, precision, shape, kernel), median_us, mode, whether it is as accurate as was asked for]"""
    rows = []
    for path in sorted(pathlib.Path(folder).glob("h200-*.json")):
        table = files.read(path)
        rows += [((op, dtype, precision, shape, kernel), us, "random", accurate)
                 for op, dtype, precision, shape, kernel, us, accurate in table.get("times", [])]
        for row in table.get("rows", []):  # some record other things
            if row["measured"]:
                op = ",".join([table["op"], *(f"{name}={value}" for name, value in table.get("attributes", {}).items())])
                what = (op, table["dtype"], table["precision"], row["shape"], row["kernel"])
                rows.append((what, row["median_us"], row["mode"], row["accurate"]))
    return rows


def ask(program, lines):
    run = subprocess.run([program], input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.split()


def check_plans(program, rows, show_all):
    """Numbers near and in all, of each op."""
    long_rows = [(what, us) for what, us, _, _ in rows if us > LEAST_US]
    said = ask(program, ["plan " + " ".join(what) for what, _ in long_rows])
    errors = [(float(ns) / 1e3 / us - 1, what, us) for ns, (what, us) in zip(said, long_rows)]
    for error, what, us in sorted(e for e in errors if show_all and not abs(e[0]) <= CLOSE):
        print(f"  {' '.join(what)}: {us:.1f} us, off by {100 * error:+.0f} %")
    numbers = {}
    for error, what, _ in errors:
        op = what[0].partition(",")[0]
        near, n = numbers.get(op, (0, 0))
        numbers[op] = near + (abs(error) <= CLOSE), n + 1
    return dict(sorted(numbers.items()))


def check_choices(program, rows):
    """[(loss, what, mode, kernel)], largest first, and how many choices were not recorded."""
    shapes = {}
    for what, us, mode, accurate in rows:
        if accurate:
            shapes.setdefault((what[:4], mode), {}).setdefault(what[4], us)
    shapes = {shape: times for shape, times in shapes.items() if len(times) > 1}
    chosen = ask(program, ["choose " + " ".join(what) for what, _ in shapes])
    losses = [(times[kernel] / min(times.values()) - 1, what, mode, kernel)
              for ((what, mode), times), kernel in zip(shapes.items(), chosen) if kernel in times]
    return sorted(losses, reverse=True), len(shapes) - len(losses)


def summary(name, numbers, losses, unknown):
    near, n = (sum(pair[i] for pair in numbers.values()) for i in (0, 1))
    ops = ", ".join(f"{op} {a} of {b}" for op, (a, b) in numbers.items())
    good = sum(loss[0] <= MUCH for loss in losses)
    return (f"{name}: {near} of {n} ({ops}). Estimates alone choose a kernel within {100 * MUCH:.0f} % of the best recorded "
            f"one in {good} of {len(losses)} shapes, and lose {100 * sum(loss[0] for loss in losses) / len(losses):.1f} % in the "
            "mean." + (f" In {unknown} more they choose one that was not recorded." if unknown else ""))


def write(page, lines):
    text = page.read_text()
    block = re.compile("(<!-- estimates -->\n).*?(<!-- /estimates -->)", re.S)
    page.write_text(block.sub(lambda m: m[1] + "".join(f"- {line}\n" for line in lines) + m[2], text))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("recorded")
    p.add_argument("--all", action="store_true")
    p.add_argument("--write", type=pathlib.Path, metavar="PAGE")
    a = p.parse_args()
    rows, lines, right = read_rows(a.recorded), [], True
    for name, is_random in (("In the tables", False), ("At random shapes", True)):
        chosen = [r for r in rows if (r[2] == "random") == is_random]
        numbers = check_plans(a.program, chosen, a.all)
        losses, unknown = check_choices(a.program, chosen)
        right &= sum(near for near, _ in numbers.values()) >= SHARE * sum(n for _, n in numbers.values())
        lines.append(summary(name, numbers, losses, unknown))
        print(lines[-1])
        for loss, what, mode, kernel in losses[:6]:
            if loss > MUCH:
                print(f"  {' '.join(what)} {mode}: {kernel}, +{100 * loss:.0f} %")
    if a.write:
        write(a.write, lines)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
