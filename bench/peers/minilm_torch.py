#!/usr/bin/env python3
"""MiniLM-L6 in PyTorch, beside the clients of examples/encoder: processes, each with the model on the first GPU.

    minilm_torch.py WHEEL SECONDS WAYS CLIENTS BATCHES LENGTHS

The last four are lists. WAYS: eager, graph (a CUDA graph of the model for each batch and length), compile (torch.compile with
CUDA graphs), onnx (onnxruntime on the CPU, its threads divided among the processes), kops (examples/encoder in Python). Each
process runs batches one at a time: ids and lengths from pinned memory, the model in f16 (on the CPU in f32), the vectors in
pinned memory. Prints one JSON document with a row for each combination, and the GPU's memory that all processes took.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import torch
from torch.nn import functional as f

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "encoder"))
import load  # noqa: E402

HEADS, WIDTH, EPS = 12, 384, 1e-12
VOCABULARY, WARMUP = 30000, 20
CASE_S = 60  # the longest that one may take, with what is compiled for it


class MiniLm(torch.nn.Module):
    """Of ids [batch, length] and how many of each count [batch], to vectors [batch, 384]."""

    def __init__(self, tensors):
        super().__init__()
        for name, x in tensors.items():
            if not name.startswith("pooler"):
                self.register_buffer(name.replace(".", "_"), torch.from_numpy(x.copy()))
        for i in range(6):
            for kind in "weight", "bias":
                parts = [self.get_buffer(f"encoder_layer_{i}_attention_self_{x}_{kind}") for x in ("query", "key", "value")]
                self.register_buffer(f"qkv_{i}_{kind}", torch.cat(parts))

    def linear(self, x, name):
        return f.linear(x, getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias"))

    def norm(self, x, name):
        return f.layer_norm(x, (WIDTH,), getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias"), EPS)

    def forward(self, ids, lengths):
        batch, length = ids.shape
        counts = torch.arange(length, device=ids.device) < lengths[:, None]
        x = self.embeddings_word_embeddings_weight[ids] + (
            self.embeddings_position_embeddings_weight[:length] + self.embeddings_token_type_embeddings_weight[0])
        x = self.norm(x, "embeddings_LayerNorm")
        for i in range(6):
            name = f"encoder_layer_{i}"
            qkv = self.linear(x, f"qkv_{i}").view(batch, length, 3, HEADS, WIDTH // HEADS)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            y = f.scaled_dot_product_attention(q, k, v, attn_mask=counts[:, None, None, :])
            y = y.transpose(1, 2).reshape(batch, length, WIDTH)
            x = self.norm(self.linear(y, f"{name}_attention_output_dense") + x, f"{name}_attention_output_LayerNorm")
            y = f.gelu(self.linear(x, f"{name}_intermediate_dense"))
            x = self.norm(self.linear(y, f"{name}_output_dense") + x, f"{name}_output_LayerNorm")
        return f.normalize((x * counts[:, :, None]).float().sum(1), dim=-1).to(x.dtype)


def encode(wheel, sentences):
    """The vectors of lists of ids, in f32."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = MiniLm(load.tensors(wheel)).to(device)
    lengths = torch.tensor([len(s) for s in sentences])
    ids = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.int64)
    for row, s in zip(ids, sentences):
        row[:len(s)] = torch.tensor(s)
    with torch.inference_mode():
        return model(ids.to(device), lengths.to(device)).double().cpu().numpy()


# ---- What a process runs: functions that take ids and return when the vectors are there ----


class OnGpu:
    def __init__(self, model):
        self.model = model.half().cuda()

    def of(self, way, batch, length):
        host = [torch.zeros(batch, length, dtype=torch.int64, pin_memory=True),
                torch.full((batch,), length, dtype=torch.int64, pin_memory=True)]
        there = [x.cuda() for x in host]
        vectors = torch.zeros(batch, WIDTH, dtype=torch.float16, pin_memory=True)
        compute = torch.compile(self.model, mode="reduce-overhead", dynamic=False) if way == "compile" else self.model

        def enqueue():
            for to, x in zip(there, host):
                to.copy_(x, non_blocking=True)
            vectors.copy_(compute(*there), non_blocking=True)

        launch = self.recorded(enqueue) if way == "graph" else enqueue

        def run(ids):
            host[0].numpy()[:] = ids
            launch()
            torch.cuda.current_stream().synchronize()

        return run

    @staticmethod
    def recorded(enqueue):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                enqueue()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            enqueue()
        return graph.replay


class OnCpu:
    def __init__(self, path, clients):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, len(os.sched_getaffinity(0)) // clients)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def of(self, _, batch, length):
        lengths = np.full(batch, length)
        return lambda ids: self.session.run(None, {"ids": ids, "lengths": lengths})


class OnKops:
    def __init__(self, vocabulary):
        import kops
        self.client, self.vocabulary = kops.connect(), vocabulary

    def of(self, _, batch, length):
        import encoder
        model = encoder.Encoder(self.client, self.vocabulary, batches=(batch,), lengths=(length,))
        return encoder.BatchJob(model, batch, length).run


def export(model, path):
    batch, length = torch.export.Dim("batch", min=1, max=1024), torch.export.Dim("length", min=2, max=512)
    torch.onnx.export(model, (torch.ones(2, 16, dtype=torch.int64), torch.full((2,), 16)), path, dynamo=True,
                      input_names=["ids", "lengths"], dynamic_shapes=({0: batch, 1: length}, {0: batch}))


# ---- Processes ----


def process(me, folder, model, *arguments):
    barrier = arguments[-2]
    try:
        with torch.inference_mode():
            take_part(me, folder, model, *arguments)
    except BaseException:
        traceback.print_exc()  # before the end of the others ends this one
        barrier.abort()
        sys.exit(1)


def take_part(me, folder, model, seconds, cases, barrier, results):
    """In all cases; sends (times in µs, seconds) of each."""
    rng = np.random.default_rng(me)
    places = {}
    for way, clients, batch, length in cases:
        run = None
        if me < clients:
            key = (way, clients) if way == "onnx" else way if way == "kops" else "gpu"
            if key not in places:
                places[key] = (OnCpu(f"{folder}/onnx", clients) if way == "onnx" else
                               OnKops(f"{folder}/vocab.txt") if way == "kops" else OnGpu(model))
            run = places[key].of(way, batch, length)
            for _ in range(WARMUP if way != "onnx" else 1):
                run(rng.integers(0, VOCABULARY, (batch, length)))
        barrier.wait()
        times, begin = [], time.perf_counter()
        end = begin
        while run and end < begin + seconds:
            run(rng.integers(0, VOCABULARY, (batch, length)))
            now = time.perf_counter()
            times.append((now - end) * 1e6)
            end = now
        results.put((times, end - begin))
        barrier.wait()


def gpu_mib():
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], text=True,
                         capture_output=True, check=False).stdout
    return int(out) if out.strip().isdigit() else 0


def follow(cases, n_processes, barrier, results):
    """The rows, and the memory that was taken."""
    rows, most = [], 0
    for way, clients, batch, length in cases:
        barrier.wait()
        found = [results.get(timeout=CASE_S) for _ in range(n_processes)]
        most = max(most, gpu_mib())
        barrier.wait()
        us = np.concatenate([times for times, _ in found])
        per_second = sum(batch * len(times) / took for times, took in found if times)
        rows.append({"way": way, "clients": clients, "batch": batch, "length": length, "per_second": round(per_second, 1),
                     "p50_us": round(float(np.median(us)), 1), "p99_us": round(float(np.quantile(us, 0.99)), 1)})
    return rows, most


def main():
    wheel, seconds, ways, *lists = sys.argv[1:]
    clients, batches, lengths = ([int(n) for n in text.split(",")] for text in lists)
    cases = [(w, c, b, n) for w in ways.split(",") for c in clients for b in batches for n in lengths]
    context = torch.multiprocessing.get_context("fork")  # before anything asks for the GPU; it spares each process the imports
    torch.set_num_threads(1)
    barrier, results = context.Barrier(max(clients) + 1, timeout=CASE_S), context.Queue()
    model, before = MiniLm(load.tensors(wheel)).eval(), gpu_mib()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "vocab.txt").write_bytes(load.read(wheel, "vocab.txt"))
        if "onnx" in ways:
            export(model, f"{folder}/onnx")
        processes = [context.Process(target=process, args=(i, folder, model, float(seconds), cases, barrier, results), daemon=True)
                     for i in range(max(clients))]
        for p in processes:
            p.start()
        rows, most = follow(cases, len(processes), barrier, results)
        for p in processes:
            p.join()
    print(json.dumps({"rows": rows, "gpu_mib": most - before}))


if __name__ == "__main__":
    main()
