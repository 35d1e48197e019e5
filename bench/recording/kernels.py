"""Kernels of an op at several shapes, and what kopsd's choice among them loses: bench/recorded/NAME-KEY.json."""
import json
import statistics

from .programs import Daemon, peer, python_peer

SEED_TABLE = ["--table", "seed", "--kernel", "all", "--cache", "both"]
CUBES = ["1024,2048,4096,8192", "--kernel", "f16x3,bf16x6,simt,cublas"]
TENSOR = ["512,1024,2048,3072,4096,8192,16384", "--kernel", "wgmma,cublas"]
# Each kernel has run for a second, the longest that bench warms up, before it is measured: at the clock that lasts.
LASTING = ["--warmup", "1000000"]
LASTING_TENSOR = ["4096,8192,16384", "--kernel", "wgmma,cublas", *LASTING]
NORMS = ["1048576x32,1048576x64,131072x128,131071x257,65536x1024,16384x4096,4096x16384,1685x41224,1024x131072", "--kernel", "all"]
HEADS = ",".join(f"{heads}x{depth}" for depth in (64, 128) for heads in ("4x16x1024", "2x16x2048", "1x16x4096", "1x16x8192", "1x16x16384"))
# One query for each head, as when a model writes: bound by memory.
DECODE = "1x32/8x1/8192x128,8x32/8x1/8192x128,64x32/8x1/8192x128,8x32x1/8192x128,8x32/8x1/65536x128"
# KEY: an op, and options of its bench.
KERNELS = {
    "gemm": ["gemm", *SEED_TABLE],
    "gemm-cubes": ["gemm", *CUBES],
    "gemm-outliers": ["gemm", *CUBES, "--input", "outliers"],
    "gemm-lognormal": ["gemm", *CUBES, "--input", "lognormal"],
    "gemm-ieee": ["gemm", "--table", "seed", "--precision", "ieee", "--kernel", "simt,cublas"],
    "gemm-bf16": ["gemm", *TENSOR, "--dtype", "bf16"],
    "gemm-f16": ["gemm", *TENSOR, "--dtype", "f16"],
    "gemm-tf32": ["gemm", *TENSOR, "--precision", "tf32"],
    "gemm-cubes-lasting": ["gemm", "4096,8192", "--kernel", "f16x3,bf16x6,cublas", *LASTING],
    "gemm-bf16-lasting": ["gemm", *LASTING_TENSOR, "--dtype", "bf16"],
    "gemm-f16-lasting": ["gemm", *LASTING_TENSOR, "--dtype", "f16"],
    "gemm-tf32-lasting": ["gemm", *LASTING_TENSOR, "--precision", "tf32"],
    "softmax": ["softmax", *SEED_TABLE],
    "softmax-long": ["softmax", "131072x128,16384x1024,4096x4096,2048x8192,1024x16384,512x32768,2048x65536,1024x131072,"
                     "512x262144,256x524288,128x1048576,32x1048576,16x1048576,256x65536,4095x32769,1685x41224,"
                     "2047x65537,1393x12131,2400x49000",
                     "--kernel", "fused,ring"],
    "softmax-f16": ["softmax", "131072x1024,16384x4096,4096x32768,2048x131072,256x1048576,32x1048576,400x100000,"
                    "1048575x137,171031x785,116521x1154",
                    "--dtype", "f16", "--kernel", "fused,ring"],
    "softmax-pieces": ["softmax", "1048576x64,65536x1024,100000x2049,16384x4096,4096x16384,1685x41224,64x1048576,8x8388608,512x1024,"
                       "16x4096", "--kernel", "pieces"],
    "layer_norm": ["layer_norm", *NORMS],
    "layer_norm-bf16": ["layer_norm", *NORMS, "--dtype", "bf16"],
    "transpose": ["transpose", *SEED_TABLE],
    "add": ["add", *SEED_TABLE],
    "copy": ["copy", *SEED_TABLE],
    "reduce": ["reduce", *SEED_TABLE],
    "reduce-f16": ["reduce", *SEED_TABLE, "--dtype", "f16"],
    "reduce-bf16": ["reduce", *SEED_TABLE, "--dtype", "bf16"],
    "attention-bf16": ["attention", HEADS, "--dtype", "bf16", "--kernel", "flash,wgmma"],
    "attention-bf16-causal": ["attention", HEADS, "--dtype", "bf16", "--kernel", "flash,wgmma", "--causal", "top_left"],
    "attention-bf16-decode": ["attention", DECODE, "--dtype", "bf16", "--kernel", "rows,flash"],
    "attention-f32": ["attention", "2x16x2048x64,1x16x4096x64,2x16x2048x128,1x16x4096x128", "--kernel", "all"],
}
WITH_TORCH = ["softmax", "transpose", "add", *(key for key in KERNELS if KERNELS[key][0] == "attention")]
INEXACT = "may have larger errors"  # in the reason why a kernel was taken

# choice-KEY: what of gemm. More shapes would take minutes each.
CHOICE = {
    "f32": [],
    "ieee": ["--precision", "ieee"],
    "tf32": ["--precision", "tf32"],
    "bf16-of-f32": ["--precision", "bf16"],
    "f16": ["--dtype", "f16"],
    "bf16": ["--dtype", "bf16"],
    "f64": ["--dtype", "f64"],
}
CHOICE_SHAPES, CHOICE_SEED = 30, 2026
JOBS = {"of many ops": [], "of one op": ["--launches", "1"]}
DECIDED = {"by estimates alone": ["--autotune", "0"], "with trials": []}

# random-OP: options of its bench, and shapes. tests/plan/check_tables compares estimates with them.
RANDOM = {
    "gemm": [([], 60), (["--precision", "ieee"], 40), (["--precision", "tf32"], 40), (["--precision", "bf16"], 20),
             (["--dtype", "f16"], 40), (["--dtype", "bf16"], 40), (["--dtype", "f64"], 20)],
    "softmax": [([], 60), (["--dtype", "f16"], 30)],
    "transpose": [([], 50), (["--dtype", "f16"], 16), (["--dtype", "f64"], 14)],
    "add": [([], 50), (["--dtype", "f16"], 14)],
    "copy": [([], 16), (["--dtype", "f16"], 8), (["--dtype", "f64"], 6)],
    "reduce": [([], 40), (["--dtype", "f16"], 20), (["--dtype", "bf16"], 20)],
}
RANDOM_SEED = 2026


def fma_rate(build, device, options):
    """The option that tells kops-bench the device's FMA rate, of types that FMA units take."""
    dtype = options[options.index("--dtype") + 1] if "--dtype" in options else "f32"
    if dtype not in ("f32", "f64"):
        return []
    found = peer(build / "bench" / "peers" / ("fma_peer" if device == "cpu" else "fma_cuda_peer"), dtype)
    return ["--fma-rate", str(found["fma_gflops_per_s"])] if found else []


def table(build, device, key):
    """Kernels of an op at several sizes."""
    with Daemon(build, device) as d:
        document = d.bench(*KERNELS[key], *fma_rate(build, device, KERNELS[key]))
    if device != "cpu" and key in WITH_TORCH:
        document["torch"] = python_peer("with_torch.py", input=json.dumps(document))
    for r in document["rows"]:
        r["accurate"] = INEXACT not in r["why"]
        print(f"{key} {r['shape']} {r['kernel']} {r['mode']}: {r['gflops_per_s']} GFLOP/s, {r['gbytes_per_s']} GB/s, "
              f"{r['ceiling_percent']} % of the ceiling, {r['peer_percent']} % of {r['peer']} {r['note']}", flush=True)
    return {k: v for k, v in document.items() if k not in ("schema", "verb", "bench", "ok")}


def losses(daemon, options):
    found = daemon.bench("gemm", "--random", str(CHOICE_SHAPES), "--seed", str(CHOICE_SEED), "--no-check", *options)
    percent = {s["shape"]: s["loss_percent"] for s in found["shapes"] if s["loss_percent"] is not None}
    worst = max(percent, key=percent.get)
    return {"shapes": len(percent), "more_than_5_percent": found["more_than_5_percent"], "worst_percent": percent[worst],
            "worst_shape": worst, "mean_percent": round(statistics.mean(percent.values()), 4)}


def choice(build, device, key):
    """What `auto` loses to the fastest kernel that it may take."""
    rows = []
    for decided, settings in DECIDED.items():
        with Daemon(build, device, *settings) as d:
            for jobs, options in JOBS.items():
                rows.append({"jobs": jobs, "decided": decided, **losses(d, [*CHOICE[key], *options])})
                print(f"choice, {key}: {rows[-1]}", flush=True)
    return {"op": "gemm", "what": key, "seed": CHOICE_SEED, "losses": rows}


def random_shapes(build, device, op):
    """Times of all kernels at random shapes; those far slower than the fastest are looked at once, or not at all."""
    times = []
    with Daemon(build, device) as d:
        for options, n in RANDOM[op]:
            found = d.bench(op, "--random", str(n), "--seed", str(RANDOM_SEED), "--kernel", "all", "--no-check", *options)
            times += [[op, found["dtype"], found["precision"], s["shape"], k["kernel"], k["median_us"],
                       not k["larger_errors"]] for s in found["shapes"] for k in s["kernels"]]
            print(f"random {op} {' '.join(options)}: {len(times)} times", flush=True)
    return {"how": f"kops-bench {op} --random N --seed {RANDOM_SEED} --kernel all, operands from memory",
            "times": times}


def tensor_cores(build):
    """What bench/plot draws roofs from. It measures none of kops's sources."""
    ceilings = peer(build / "bench" / "peers" / "tensor_peer")
    return ceilings and {"trees": {}, "ceilings": ceilings}


def all_keys():
    """{KEY: a function of the build and the device, which gives the document}; tensor only where the peer was built."""
    keys = {"tensor": lambda build, device: tensor_cores(build)}
    for key in KERNELS:
        keys[key] = lambda build, device, key=key: table(build, device, key)
    for key in CHOICE:
        keys[f"choice-{key}"] = lambda build, device, key=key: choice(build, device, key)
    for op in RANDOM:
        keys[f"random-{op}"] = lambda build, device, op=op: random_shapes(build, device, op)
    return keys
