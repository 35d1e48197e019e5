#!/usr/bin/env python3
"""Times PyTorch at the cases that kops-bench measured, the way it times kernels: results into
memory that is there, as many launches to a sample over as many sets of operands, nothing but the device's time (a CUDA
graph between two events).

    with_torch.py < document.json        what `kops-bench OP --json` wrote; OP: softmax, transpose, add, reduce, attention

Writes JSON: {"version": …, "rows": [{"shape", "mode", "median_us"}, …]}, one row per shape and mode. Of attention each way that
PyTorch has to compute it is a peer: rows have a "name". One that does not take the types or shapes is left out.
"""
import contextlib
import json
import statistics
import sys

import torch
from torch.nn import attention
from torch.nn.functional import scaled_dot_product_attention

SAMPLES = 20
HOLD_CYCLES = 200_000  # 100 µs
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
# Ways to compute an op; None: there is one.
WAYS = {"attention": {"cuDNN": attention.SDPBackend.CUDNN_ATTENTION, "FlashAttention": attention.SDPBackend.FLASH_ATTENTION,
                      "memory-efficient": attention.SDPBackend.EFFICIENT_ATTENTION}}


def extents_of(shape):
    """Of "4x32/8x1/8192x128": [4], [32, 8], [1, 8192], [128]."""
    return [[int(n) for n in part.split("/")] for part in shape.split("x")]


def operation(op, shape, dtype, attributes):
    """A function that makes one set of operands, and one that enqueues the op on a set."""
    def operand(*extents):
        return (torch.rand(extents, device="cuda", dtype=torch.float32) * 2 - 1).to(dtype)

    if op == "attention":
        [batch], heads, rows, [depth] = shape
        causal = attributes.get("causal", "none")
        if causal == "bottom_right" and rows[0] != rows[-1]:
            raise ValueError("PyTorch's causal mask is top_left")
        kv = batch, heads[-1], rows[-1], depth
        return (lambda: (operand(batch, heads[0], rows[0], depth), operand(*kv), operand(*kv))), (
            lambda s: scaled_dot_product_attention(*s, is_causal=causal != "none", enable_gqa=len(heads) > 1))
    shape = [n for [n] in shape]
    if op == "softmax":
        return (lambda: (operand(*shape), operand(*shape))), (lambda s: torch.softmax(s[0], -1, out=s[1]))
    if op == "transpose":
        return (lambda: (operand(*shape), operand(*reversed(shape)))), (lambda s: s[1].copy_(s[0].t()))
    if op == "add":
        return (lambda: tuple(operand(*shape) for _ in range(3))), (lambda s: torch.add(s[0], s[1], out=s[2]))
    if op == "reduce":
        return (lambda: (operand(*shape), operand(*shape[:-1]))), (lambda s: torch.sum(s[0], -1, out=s[1]))
    sys.exit(f"with_torch.py: no op {op}; one of softmax, transpose, add, reduce, attention")


def median_us(document, shape, n_sets, launches):
    make, enqueue = operation(document["op"], extents_of(shape), DTYPES[document["dtype"]], document.get("attributes", {}))
    sets = [make() for _ in range(n_sets)]
    enqueue(sets[0])
    torch.cuda.synchronize()
    graphs = []
    for first in range(0, n_sets, launches):  # as many graphs as it takes to come to each set
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                enqueue(sets[(first + i) % n_sets])
        graphs.append(graph)
    for graph in graphs:  # the first replay uploads it
        graph.replay()
    samples = []
    for i in range(SAMPLES + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOLD_CYCLES)  # until the replay is enqueued
        begin.record()
        graphs[i % len(graphs)].replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(samples[2:])


def main():
    document = json.load(sys.stdin)
    cases = {}  # by shape and mode: the sets and launches of the fastest kernel's samples
    for r in document["rows"]:
        if r["measured"] and r["sets"] > 0:
            key = (r["shape"], r["mode"])
            cases[key] = max(cases.get(key, (0, 0)), (r["launches"], r["sets"]))
    rows = []
    for (shape, mode), (launches, n_sets) in cases.items():
        for name, way in WAYS.get(document["op"], {None: None}).items():
            try:
                with attention.sdpa_kernel(way) if way else contextlib.nullcontext():
                    us = median_us(document, shape, n_sets, launches)
            except (RuntimeError, ValueError) as e:
                if name is None:
                    raise
                print(f"with_torch.py: {shape} without {name}: {e}", file=sys.stderr)
                continue
            rows.append({"shape": shape, "mode": mode, "median_us": round(us, 3)} | ({"name": name} if name else {}))
            torch.cuda.empty_cache()
    json.dump({"version": torch.__version__, "rows": rows}, sys.stdout)


main()
