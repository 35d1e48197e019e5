"""bench/record keeps what was measured, whatever fails; bench/tables writes it down."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))


def program(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


record, tables = program("record"), program("tables")
figures, files, machine, programs = record.figures, record.files, record.machine, sys.modules["recording.programs"]
encoder = figures.encoder
TREES = {"kernels": "1", "daemon": "2", "proto": "3"}


def good(rows, _):
    rows.add("job", "64³", 12.5, "µs", "≤ 20 µs", peers=[("cuBLAS", 25), ("floor", None), ("graph", 10)])


def bad(rows, build):
    good(rows, build)
    raise programs.Failed("no such GPU")


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kops-record-")
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "h200.json"
        parts = dict(figures.PARTS)
        self.addCleanup(lambda: (figures.PARTS.clear(), figures.PARTS.update(parts)))

    def measure(self, trees=TREES, **parts):
        figures.PARTS.clear()
        figures.PARTS.update(parts)
        recording = record.Recording(self.out.parent, self.out, trees, "13.0")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for name in parts:
                recording.part(name)
        return recording.failed, json.loads(self.out.read_text())


class Middle(unittest.TestCase):
    def test_each_number_is_the_median_of_the_turns(self):
        turns = [{"ok": True, "kernel": "simt", "jobs": [{"out": 4, "p50_us": p50}], "rate": rate}
                 for p50, rate in ((3.5, 20), (1.5, 90), (2.5, 10))]
        self.assertEqual(figures.middle(turns),
                         {"ok": True, "kernel": "simt", "jobs": [{"out": 4, "p50_us": 2.5}], "rate": 20})


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Record(WithFolder):
    def test_a_part_that_fails_keeps_its_rows_and_the_others(self):
        failed, document = self.measure(first=good, second=bad, third=good)
        self.assertEqual(failed, ["second"])
        self.assertEqual([r["part"] for r in document["figures"]], ["first", "second", "third"])
        self.assertEqual(list(document["seconds"]), ["first", "second", "third"])

    def test_parts_stay_where_the_sources_are_the_same(self):
        self.measure(first=good, second=good)
        def again(rows, _):
            rows.add("job", "64³", 11, "µs")
        figures_now = self.measure(first=again, second=good)[1]["figures"]
        self.assertEqual([r["value"] for r in figures_now], [11, 12.5])
        self.out.unlink()
        self.measure(second=good)
        other = self.measure({**TREES, "daemon": "9"}, first=good)[1]
        self.assertEqual([r["part"] for r in other["figures"]], ["first"])

    def test_a_peer_that_is_missing_or_fails_is_reported(self):
        for words in (("/nonexistent/cublas_peer",), ("false",), ("echo", "no JSON")):
            with self.subTest(words=words), contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertIsNone(programs.peer(*words))
                self.assertIn(f"without this peer: {pathlib.Path(words[0]).name}", said.getvalue())
        self.assertIsNone(figures.of(None, "shapes", "us"))
        self.assertEqual(figures.of({"shapes": {"us": 3}}, "shapes", "us"), 3)

    def test_the_fma_rate_is_of_the_device_and_type(self):
        def peer(program, dtype):
            return {"fma_gflops_per_s": 62800.5} if (program.name, dtype) in found else None

        build, found = pathlib.Path("build"), [("fma_peer", "f64"), ("fma_cuda_peer", "f32")]
        with unittest.mock.patch.object(record.kernels, "peer", peer):
            for device, options, want in (("cpu", ["gemm", "--dtype", "f64"], ["--fma-rate", "62800.5"]),
                                          ("gpu0", ["softmax"], ["--fma-rate", "62800.5"]), ("cpu", ["gemm"], []),
                                          ("gpu0", ["gemm", "--dtype", "f16"], [])):
                self.assertEqual(record.kernels.fma_rate(build, device, options), want)

    def test_beside_a_heavy_user_stand_the_programs_that_call_cublas(self):
        light = {"wall": {"p50_us": 50, "p99_us": 150}}
        loads = [{"load": "gemm:f32:tf32:8192", "why": None, "light": light, "kept": 0.99},
                 {"load": "gemm:f64:4096", "why": "no such type"},
                 {"load": "gemm:f32:4096:x16", "why": None, "light": light, "kept": 1}]

        class Daemon(Context):
            def __init__(self, *_):
                self.is_open = False

            def admit_all(self):
                self.is_open = True

            def bench(self, verb, *_):
                assert self.is_open and verb == "beside"
                return {"quiet": light, "loads": loads}

        def peer(program, *words, env=None):
            asked.append((program.name, words[-1], env))
            return {"light": {"p50_us": 4000, "p99_us": 5000}, "alone_per_second": 10, "beside_per_second": 9}

        asked, rows = [], figures.Rows("beside")
        with unittest.mock.patch.multiple(figures, Daemon=Daemon, peer=peer, Mps=contextlib.nullcontext), \
                contextlib.redirect_stdout(io.StringIO()):
            figures.beside_part(rows, self.out.parent)
        self.assertEqual(asked, [("beside_peer", "tf32:8192", None)])  # without MPS
        self.assertEqual([r["name"] for r in rows.list[2:]],
                         [f"{a}{load}{b}" for load in ("tf32 8192³", "f32 4096³, 16 a job")
                          for a, b in (("64³ beside ", ": p50"), ("64³ beside ", ": p99"), ("", " beside 64³: kept"))])
        self.assertEqual(rows.list[2]["target"], "≤ 90 µs")
        self.assertEqual([p["value"] for r in rows.list[2:5] for p in r["peers"]], [4000, 5000, 90])
        self.assertEqual([r["peers"] for r in rows.list[5:]], [[], [], []])

    def test_two_gpus_have_a_daemon_each_beside_one_for_both(self):
        started = []

        class Daemon(Context):
            def __init__(self, _, devices):
                self.devices = devices
                started.append(devices)

            def bench(self, *words):
                assert words[-1] in self.devices.split(",")
                return {"rates": [{"per_second": 100 if self.devices == words[-1] else 70}]}

        self.addCleanup(setattr, figures, "Daemon", figures.Daemon)
        figures.Daemon = Daemon
        rows = figures.Rows("gpus")
        with contextlib.redirect_stdout(io.StringIO()):
            figures.gpus_part(rows, self.out.parent)
        self.assertEqual(started, ["gpu0", "gpu1", "gpu0,gpu1"] * 3)
        self.assertEqual(rows.list[0]["name"], "8 clients, 16 in flight, on each of two GPUs: 64³ products")
        for row in rows.list:
            self.assertEqual([row["value"], *(p["value"] for p in row["peers"])], [200, 140, 100])

    def test_small_ops_beside_pytorchs(self):
        class Daemon(Context):
            def __init__(self, _, devices):
                assert devices == "gpu0"

            def bench(self, *words):
                return {"op": words[0], "dtype": words[words.index("--dtype") + 1],
                        "rows": [{"shape": shape, "median_us": 2} for shape in words[1].split(",")]}

        def python_peer(name, input):
            document = json.loads(input)
            if document["op"] == "add":
                return None
            return {"rows": [{"shape": r["shape"], "median_us": 3} for r in document["rows"]]}

        for name, value in ("Daemon", Daemon), ("python_peer", python_peer):
            self.addCleanup(setattr, figures, name, getattr(figures, name))
            setattr(figures, name, value)
        rows = figures.Rows("small")
        with contextlib.redirect_stdout(io.StringIO()):
            figures.small_part(rows, self.out.parent)
        self.assertEqual(len(rows.list), 8 * len(figures.MEMORY_SIZES))
        self.assertEqual(len({r["name"] for r in rows.list}), len(rows.list))
        self.assertEqual({(r["name"].split()[0], *[p["value"] for p in r["peers"]]) for r in rows.list},
                         {("add",), ("softmax", 3), ("transpose", 3), ("reduce", 3)})

    def test_products_over_two_gpus_beside_one(self):
        class Daemon(Context):
            def __init__(self, _, devices):
                assert devices == "gpu0,gpu1"

            def bench(self, *words):
                assert words[0] == "gemm" and "--again" in words
                return {"rows": [{"median_us": n * (1 if words[-1] == "gpu*" else 2)} for n in figures.SPREAD_SIZES]}

        self.addCleanup(setattr, figures, "Daemon", figures.Daemon)
        figures.Daemon = Daemon
        rows = figures.Rows("spread")
        with contextlib.redirect_stdout(io.StringIO()):
            figures.spread_part(rows, self.out.parent)
        self.assertEqual([(r["value"], r["peers"][0]["value"]) for r in rows.list], [(n / 1e3, n / 500) for n in figures.SPREAD_SIZES])
        self.assertEqual(rows.list[1]["name"], "f32 8192³, host to host, over two GPUs")

    def test_clients_of_the_encoder_beside_pytorchs_processes(self):
        def case(clients, batch, length, rate):
            return {"clients": clients, "batch": batch, "length": length, "per_second": rate, "p50_us": 200, "p99_us": 300}

        def python_peer(name, wheel, seconds, way, *words, env=None):
            if way == "kops":
                return {"rows": [case(16, 32, 64, 1000)], "gpu_mib": 0}
            if way not in ("graph", "onnx"):
                return None
            return {"rows": [case(16, 1, 64, 5000 if env else 500)], "gpu_mib": 9000 if env else 8000}

        class Daemon(Context):
            def __init__(self, _, devices):
                self.env = {"PATH": "/bin"}

        class Mps(Context):
            def __enter__(self):
                return {"MPS": "1"}

        ours = {(16, 1, 64): case(16, 1, 64, 20000), (1, 32, 16): case(1, 32, 16, 60000)}
        for name, value in (("Daemon", Daemon), ("Mps", Mps), ("python_peer", python_peer), ("used_mib", lambda: 100),
                            ("fetch", lambda: ("model", "wheel")), ("publish", lambda *_: {}), ("run_clients", lambda *_: (ours, 1600))):
            self.addCleanup(setattr, encoder, name, getattr(encoder, name))
            setattr(encoder, name, value)
        rows = figures.Rows("encoder")
        with contextlib.redirect_stdout(io.StringIO()):
            encoder.encoder_part(rows, self.out.parent)
        first = rows.list[0]
        self.assertEqual((first["theme"], first["name"], first["value"], first["unit"]),
                         ("encoder", "f16, 16 clients, batch 1, 64 tokens: sentences", 20000, "1/s"))
        self.assertEqual(first["target"], "≥ 2 × the best of them")
        self.assertEqual([(p["name"], p["ratio"]) for p in first["peers"]],
                         [("PyTorch, CUDA graphs", 40), ("PyTorch, CUDA graphs, under MPS", 4), ("onnxruntime on the CPU", 40)])
        self.assertEqual([r["name"].rpartition(": ")[2] for r in rows.list[:6]], ["sentences", "p50", "p99"] * 2)
        self.assertEqual((rows.list[3]["theme"], rows.list[3]["peers"]), ("encoder-all", []))
        memory = next(r for r in rows.list if r["unit"] == "MiB")
        self.assertEqual([memory["value"], *(p["value"] for p in memory["peers"])], [1500, 8000, 9000])
        self.assertIn("f16, in Python, 16 clients, batch 32, 64 tokens: sentences", [r["name"] for r in rows.list])

    def test_names_are_parts_keys_and_patterns(self):
        parts, keys = ["cpu", "jobs"], ["gemm", "choice-f32", "choice-f16"]
        self.assertEqual(record.chosen(None, parts, keys), (parts, keys))
        self.assertEqual(record.chosen("figures,choice-*", parts, keys), (parts, keys[1:]))
        self.assertEqual(record.chosen("gemm,jobs", parts, keys), (["jobs"], ["gemm"]))
        with self.assertRaisesRegex(SystemExit, "nothing is called gem; there are figures, cpu, jobs, gemm"):
            record.chosen("gem", parts, keys)

    def written(self, document):
        """The text, and what is read of it."""
        record.write(self.out, document)
        return self.out.read_text(), files.read(self.out)

    def test_times_of_a_shape_are_a_line(self):
        times = [["gemm", "f32", "ieee", "3x4x5", kernel, us, accurate]
                 for kernel, us, accurate in (("simt", 1.5, True), ("cublas", 2, True), ("naive", 3, False))]
        times.append(["add", "f16", "f32", "7x9", "scalar", 4.5, True])
        text, again = self.written({"schema": 2, "times": times})
        self.assertEqual(again, {"schema": 2, "times": times})
        self.assertIn('\n  ["gemm", "f32", "ieee", "3x4x5", {"simt": 1.5, "cublas": 2}, {"naive": 3}],\n', text)

    def test_a_row_is_a_line_and_has_what_follows_from_it(self):
        row = {"shape": "64x64x64", "kernel": "simt", "mode": "cold", "measured": True, "samples": 20, "flops": 524288,
               "bytes": 49152, "footprint_bytes": 49152, "min_us": 3.5, "median_us": 4, "max_us": 5, "gflops_per_s": 131.072,
               "gbytes_per_s": 12.288, "ceiling_percent": 12.5, "peer": "cublas", "peer_us": 3, "peer_percent": 75,
               "max_error": 1.234e-7, "accurate": True, "note": ""}
        refused = {**row, **dict.fromkeys(("flops", "bytes", "min_us", "median_us", "max_us", "gflops_per_s", "gbytes_per_s",
                                           "ceiling_percent", "peer_percent", "max_error")), "measured": False, "note": "no"}
        alone = {**row, "peer": "", "peer_us": None, "peer_percent": None}
        text, again = self.written({"op": "gemm", "rows": [{**row, "why": "asked for"}, refused, alone]})
        self.assertEqual(again, {"op": "gemm", "rows": [row, refused, alone]})
        self.assertEqual(self.written(again), (text, again))
        self.assertIn('\n  ["64x64x64", "simt", "cold", 20, 524288, 49152, 49152, 3.5, 4, 5, 12.5, "cublas", 3, 1.234e-07, true, ""],\n', text)

    def test_a_figure_is_a_line(self):
        text, again = self.written({"seconds": {"cpu": 1}, "figures": [{"name": "64³", "value": 1}, {"name": "b", "value": 2}]})
        self.assertEqual(text, '{\n "seconds": {"cpu": 1},\n "figures": [\n  {"name": "64³", "value": 1},\n  {"name": "b", "value": 2}\n ]\n}\n')
        self.assertEqual(again["figures"][1], {"name": "b", "value": 2})


class Tables(WithFolder):
    def setUp(self):
        super().setUp()
        recorded = tables.RECORDED
        tables.RECORDED = self.out.parent
        self.addCleanup(lambda: setattr(tables, "RECORDED", recorded))

    def test_each_peer_has_a_line(self):
        self.measure(first=good)
        first, second = "| 64³ | 12.5 µs | 25 µs, cuBLAS | 0.50 | ≤ 20 µs |\n", "|  |  | 10 µs, graph | 1.25 |  |\n"
        self.assertTrue(tables.bench("h200", "job").endswith("|\n" + first + second))
        self.assertEqual(tables.bench("h200", "headlines"), "Not recorded yet.\n")
        self.addCleanup(setattr, tables, "HEADLINES", tables.HEADLINES)
        tables.HEADLINES = ("64³",)
        self.assertTrue(tables.bench("h200", "headlines").endswith("|\n" + first + second))
        self.assertEqual(tables.bench("h200", "python"), "Not recorded yet.\n")

    def test_ways_of_pytorch_are_peers(self):
        row = {"mode": "cold", "samples": 20, "flops": 4e9, "bytes": 1e6, "footprint_bytes": 1e6, "min_us": 9, "median_us": 10,
               "max_us": 11, "ceiling_percent": None, "peer": "", "peer_us": None, "max_error": 0, "accurate": True, "note": ""}
        rows = [{**row, "shape": shape, "kernel": kernel} for shape in ("2x16x64x128", "1x32/8x1/64x128") for kernel in ("flash", "wgmma")]
        document = record.head(TREES, "13.0", None) | {
            "op": "attention", "dtype": "bf16", "precision": "f32", "attributes": {"causal": "top_left"}, "rows": rows,
            "torch": {"version": "2.11", "rows": [{"shape": "2x16x64x128", "mode": "cold", "name": "cuDNN", "median_us": 20},
                                                  {"shape": "2x16x64x128", "mode": "cold", "name": "FlashAttention", "median_us": 5}]}}
        record.write(self.out, document)
        text = tables.speed_tables("h200")
        self.assertTrue(text.startswith("bf16, precision f32, causal top_left: "))
        self.assertIn("| GFLOP/s | 2×16×64×128 | 1×32/8×1/64×128 |\n|---|---:|---:|\n| `flash` | 400,000 | 400,000 |", text)
        self.assertIn("| PyTorch 2.11, cuDNN | 200,000 | – |\n| PyTorch 2.11, FlashAttention | 800,000 | – |\n", text)
        self.assertIn("| of cuDNN | 2×16×64×128 | 1×32/8×1/64×128 |\n|---|---:|---:|\n| `flash` | 2.00 | – |\n| `wgmma` | 2.00 | – |\n", text)
        self.assertNotIn("of FlashAttention", text)
        self.assertIn("| GB/s | 2×16×64×128 | 1×32/8×1/64×128 |\n|---|---:|---:|\n| `flash` | 100 | 100 |", tables.speed_tables("h200", "bytes"))

    def test_choice_is_one_line_for_each_kind_of_job(self):
        loss = {"shapes": 60, "more_than_5_percent": 2, "worst_percent": 12.3, "mean_percent": 0.5}
        better = {**loss, "more_than_5_percent": 0, "worst_percent": 1.5, "mean_percent": 0.01}
        document = {"cores": 16, "cpu": "a CPU", "gpu": None, "date": "2026-11-24", "seed": 7, "what": "bf16-of-f32",
                    "losses": [{"jobs": "of one op", "decided": "alone", **loss},
                               {"jobs": "of one op", "decided": "with trials", **better}]}
        (self.out.parent / "h200-choice-bf16-of-f32.json").write_text(json.dumps(document))
        self.assertIn("| bf16 of f32, of one op | 60 | 2; 0.5 %, 12 % | 0; 0.01 %, 1.5 % |\n", tables.choice("h200"))


@unittest.skipIf(shutil.which("git") is None, "there is no git")
class Sources(unittest.TestCase):
    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=self.root, check=True,
                       stdout=subprocess.DEVNULL)

    def hash_with(self, path, text):
        (self.root / "kernels" / path).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-m", path)
        return machine.tree_hash("kernels")

    def test_constants_that_are_fitted_to_figures_are_none_of_them(self):
        folder = tempfile.TemporaryDirectory(prefix="kops-record-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "kernels").mkdir()
        self.git("init", "-q")
        with unittest.mock.patch.object(machine, "ROOT", self.root):
            first = self.hash_with("gemm.cu", "1")
            self.assertEqual(self.hash_with("fitted.c", "2"), first)
            self.assertNotEqual(self.hash_with("gemm.cu", "3"), first)


if __name__ == "__main__":
    unittest.main()
