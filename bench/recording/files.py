"""The form of bench/recorded/*.json: JSON that holds what tables, plots and fits need, with a line for each case.

    rows     kernels of an op: a list each, whose columns `fields` names; what follows from those is not stored
    times    random shapes: [OP, DTYPE, PRECISION, SHAPE, {KERNEL: µs}, {KERNEL: µs}], the last of kernels with larger errors
    figures, losses   an object each

Everything else is a member on a line of its own. read() gives rows as `kops-bench --json` has them, and of times a list for each
kernel: op, dtype, precision, shape, kernel, µs, whether it is as accurate as was asked for.
"""
import json

FIELDS = ["shape", "kernel", "mode", "samples", "flops", "bytes", "footprint_bytes", "min_us", "median_us", "max_us",
          "ceiling_percent", "peer", "peer_us", "max_error", "accurate", "note"]
DIGITS = {"ceiling_percent": 6, "max_error": 4}
IN_LINES = ("rows", "times", "figures", "losses")


def rounded(field, value):
    digits = DIGITS.get(field)
    return float(f"{value:.{digits}g}") if digits and value is not None else value


def grouped(times):
    """A list for each problem."""
    problems = {}
    for *problem, kernel, us, accurate in times:
        problems.setdefault(tuple(problem), ({}, {}))[0 if accurate else 1][kernel] = us
    return [[*problem, *kernels] for problem, kernels in problems.items()]


def compact(document):
    document = dict(document)
    if "rows" in document:
        rows = document.pop("rows")
        document.update(fields=FIELDS, rows=[[rounded(f, r[f]) for f in FIELDS] for r in rows])
    if "times" in document:
        document["times"] = grouped(document["times"])
    return document


def text_of(document):
    """Of a document as read() gives it, or as it was measured."""
    def text(value):
        return json.dumps(value, ensure_ascii=False)

    members = []
    for name, value in compact(document).items():
        lines = "[\n  " + ",\n  ".join(map(text, value)) + "\n ]" if name in IN_LINES and value else text(value)
        members.append(f" {text(name)}: {lines}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def row_of(values, fields):
    row = dict(zip(fields, values))
    us = row["median_us"]
    row.update(measured=us is not None, gflops_per_s=us and row["flops"] / us * 1e-3, gbytes_per_s=us and row["bytes"] / us * 1e-3,
               peer_percent=us and row["peer_us"] and 100 * row["peer_us"] / us)
    return row


def expanded(document):
    """What compact() made of it; another document, such as of kops-bench, as it is."""
    if "fields" in document:
        fields = document.pop("fields")
        document["rows"] = [row_of(values, fields) for values in document["rows"]]
    if "times" in document:
        document["times"] = [[*problem, kernel, us, accurate] for *problem, right, larger in document["times"]
                             for accurate, kernels in ((True, right), (False, larger)) for kernel, us in kernels.items()]
    return document


def read(path):
    return expanded(json.loads(path.read_text(encoding="utf-8")))
