"""kops-bench against the real daemon and its CPU device: every op, its reports, its refusals."""
import csv
import io
import json
import os
import subprocess
import tempfile

from support import harness

OK, FAILED, USAGE, CONNECT, TIMEOUT, CHECK = range(6)
KERNELS = {"gemm": ["reference", "openblas"], "softmax": ["reference", "vectorised"],
           "transpose": ["reference", "vectorised"], "add": ["reference", "vectorised"],
           "copy": ["reference", "vectorised"], "reduce": ["reference", "vectorised"], "attention": ["reference", "tiles"]}
SHAPES = {"gemm": "33x65x17,64", "softmax": "5x1000,64", "transpose": "33x65,64", "add": "33x65,64", "copy": "33x65,64",
          "reduce": "33x1000,64", "attention": "2x6/3x33/65x17,1x2x1x8"}
FEW = ("--reps", "3", "--warmup", "1")
QUICKLY = (*FEW, "--no-ceiling")


class BenchTest(harness.DaemonTest):
    # Little room for sets of operands keeps the tests short.
    settings = {"max_resident_per_uid": "256M"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory(prefix="kops-bench-")
        cls.addClassCleanup(cls.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def bench(self, *args, code=OK):
        r = subprocess.run([harness.KOPS_BENCH, *args], capture_output=True, timeout=600,
                           env=harness.client_env(self.daemon.socket), cwd=self.folder.name, text=True)
        self.assertEqual(r.returncode, code, f"{args}: {r.stderr}")
        return r

    def json(self, *args, **options):
        d = json.loads(self.bench(*args, "--json", **options).stdout)
        self.assertEqual(d["schema"], 1)
        return d

    def csv(self, *args, **options):
        return list(csv.DictReader(io.StringIO(self.bench(*args, "--csv", **options).stdout)))


class Measures(BenchTest):
    def test_launches(self):
        [alone], [many] = (self.csv("add", "64", *words, *FEW) for words in (("--launches", "1"), ("--launches", "7")))
        self.assertEqual((alone["launches"], many["launches"]), ("1", "7"))
        for row in self.csv("add", "--random", "1", "--launches", "2", *FEW):
            self.assertEqual(row["launches"], "2")

    def test_distributions(self):
        errors = {}
        for words in ([], ["--input", "uniform"], ["--input", "normal"], ["--input", "outliers"], ["--input", "lognormal"]):
            d = self.json("gemm", "128", "--seed", "5", "--cache", "warm", "--no-ceiling", *words, *FEW)
            [row] = d["rows"]
            self.assertFalse(row["wrong"], words)
            errors.setdefault(d["input"], []).append(row["max_error"])
        self.assertEqual(list(errors), ["uniform", "normal", "outliers", "lognormal"])
        self.assertEqual(*errors["uniform"])
        self.assertGreater(errors["outliers"][0], 100 * errors["normal"][0])
        self.assertGreater(errors["lognormal"][0], 10 * errors["normal"][0])
        self.assertIn("takes uniform, normal, outliers or lognormal", self.bench("gemm", "64", "--input", "gauss", code=USAGE).stderr)

    def test_every_op_and_kernel(self):
        for op, kernels in KERNELS.items():
            with self.subTest(op=op):
                d = self.json(op, SHAPES[op], "--kernel", "all", "--cache", "warm", "--seed", "5", *QUICKLY)
                self.assertTrue(d["ok"])
                self.assertEqual((d["op"], d["dtype"], d["device"], d["seed"]), (op, "f32", "cpu", 5))
                self.assertEqual([r["kernel"] for r in d["rows"]], 2 * kernels)
                for r in d["rows"]:
                    self.check_row(op, r)

    def check_row(self, op, r):
        self.assertTrue(r["measured"] and not r["wrong"])
        self.assertGreater(r["min_us"], 0)
        self.assertTrue(r["min_us"] <= r["median_us"] <= r["max_us"])
        self.assertTrue(1 <= r["launches"] <= 32)
        self.assertEqual((r["samples"], r["mode"], r["sets"]), (3, "warm", 1))
        self.assertAlmostEqual(r["gbytes_per_s"], r["bytes"] / r["median_us"] / 1e3, delta=1e-3 * r["gbytes_per_s"])
        self.assertTrue(0 <= r["max_error"] < 1e-3)
        self.assertTrue(0 <= r["error_to_bound"] <= 1)
        if op in ("transpose", "copy"):
            self.assertEqual((r["max_error"], r["flops"]), (0, 0))
        peers = {"gemm": "openblas", "copy": None, "attention": None}
        self.assertEqual(r["peer"], peers.get(op, "vectorised"))
        if r["peer"] == r["kernel"] and op == "gemm":
            self.assertAlmostEqual(r["peer_percent"], 100)

    def test_ceilings(self):
        d = self.json("gemm", "64", "--cache", "warm", "--no-check", "--fma-rate", "123.4567", *FEW)
        self.assertEqual(d["ceilings"]["fma_gflops_per_s"], 123.457)
        self.assertGreater(d["ceilings"]["memory_gbytes_per_s"], 0)
        [r] = d["rows"]
        self.assertLessEqual(r["ceiling"], 123.457)
        self.assertAlmostEqual(r["ceiling_percent"], 100 * r["gflops_per_s"] / r["ceiling"], delta=1e-6)
        for words in ([], ["--fma-rate", "123", "--dtype", "f16"], ["--fma-rate", "123", "--precision", "tf32"]):
            d = self.json("gemm", "64", "--cache", "warm", "--no-check", *words, *FEW)
            self.assertIsNone(d["ceilings"]["fma_gflops_per_s"])
            self.assertIsNone(d["rows"][0]["ceiling_percent"])
        self.bench("gemm", "64", "--fma-rate", "-1", code=USAGE)
        d = self.json("gemm", "64", "--cache", "warm", "--no-check", *QUICKLY)
        self.assertEqual(set(d["ceilings"].values()), {None, d["ceilings"]["cache_bytes"]})
        self.assertIsNone(d["rows"][0]["ceiling_percent"])

    def test_counts_follow_from_the_shape(self):
        [r] = self.json("gemm", "40x30x20", "--dtype", "f64", "--cache", "warm", *QUICKLY)["rows"]
        self.assertEqual((r["shape"], r["flops"]), ("40x30x20", 2 * 40 * 30 * 20))
        self.assertEqual((r["footprint_bytes"], r["bytes"]), (8 * (800 + 600 + 1200), 8 * (800 + 600 + 1200)))
        self.assertEqual(r["kernel"], "openblas")  # the one that kopsd takes, and why
        self.assertTrue(r["why"])
        self.assertIn("reference", r["passed_over"])

    def test_attributes_and_optional_operands(self):
        for dtype in "f32", "f64", "f16", "bf16":
            for mode in ["--cache", "both"], ["--host"]:
                plain, with_bias = (self.json("gemm", "70x65x33,1x300x64,300x1x64", "--dtype", dtype, "--kernel", "all", "--alpha",
                                              "0.5", "--activation", "gelu", *mode, *words, *QUICKLY)["rows"]
                                    for words in ([], ["--bias"]))
                for before, after in zip(plain, with_bias):
                    columns = int(after["shape"].split("x")[1])
                    size = {"f32": 4, "f64": 8}.get(dtype, 2)
                    self.assertEqual(after["footprint_bytes"] - before["footprint_bytes"], size * columns)
                    self.assertTrue(after["median_us"] is None or after["error_to_bound"] <= 1)
                self.assertGreater(sum(row["median_us"] is not None for row in with_bias), 3)
        self.assertGreater(len(self.csv("gemm", "--random", "2", "--bias", "--activation", "relu", *QUICKLY)), 1)
        for words in ("softmax", "--log", "--scale", "2"), ("reduce", "--kind", "max"), ("layer_norm", "--eps", "1"):
            [row] = self.json(words[0], "33x1000", *words[1:], *QUICKLY)["rows"]
            self.assertLessEqual(row["error_to_bound"], 1)
        [plain], [added] = (self.json("rms_norm", "33x1000", *words, *QUICKLY)["rows"] for words in ([], ["--residual"]))
        self.assertEqual(added["footprint_bytes"] - plain["footprint_bytes"], 4 * 33 * 1000)
        self.bench("layer_norm", "33x1000", "--bias", code=USAGE)  # it has one anyway
        self.bench("gemm", "64", "--beta", "1", code=USAGE)

    def test_attention_counts_what_is_seen(self):
        causal = "--causal", "top_left"
        for words, seen in ((), 300 * 300), (causal, 300 * 301 / 2), (("--mask",), 300 * 300):
            d = self.json("attention", "1x4x300x16", *words, *QUICKLY)
            [row] = d["rows"]
            self.assertAlmostEqual(row["flops"], 4 * 4 * 16 * seen, delta=0.01 * row["flops"])
            self.assertEqual(row["footprint_bytes"], 4 * (4 * 4 * 300 * 16 + ("--mask" in words) * 300 * 300))
            self.assertEqual(d["attributes"], {"causal": "top_left"} if words == causal else {})
        self.assertIn("k's heads must divide q's", self.bench("attention", "1x6/4x5x8", *QUICKLY, code=FAILED).stderr)
        lines = self.bench("attention", "1x4x30x16", *QUICKLY).stdout.splitlines()
        self.assertTrue(any("GFLOP/s     GB/s" in line for line in lines))

    def test_small_types(self):
        for op in ("softmax", "transpose", "add", "copy", "gemm", "reduce"):
            for dtype in ("f16", "bf16"):
                with self.subTest(op=op, dtype=dtype):
                    d = self.json(op, "70x65x33" if op == "gemm" else "70x65", "--dtype", dtype, "--host", *QUICKLY)
                    self.assertEqual((d["dtype"], len(d["rows"])), (dtype, 1))
                    self.assertLessEqual(d["rows"][0]["error_to_bound"], 1)

    def test_cold_and_warm(self):
        rows = self.csv("add", "64x1024", "--kernel", "vectorised", "--cache", "both", *QUICKLY)
        self.assertEqual([r["mode"] for r in rows], ["cold", "warm"])
        self.assertGreater(int(rows[0]["sets"]), 1)
        self.assertEqual(int(rows[1]["sets"]), 1)
        self.assertGreater(float(rows[0]["peer_percent"]), 0)
        self.assertEqual([r["mode"] for r in self.csv("add", "64x1024", *QUICKLY)], ["cold"])

    def test_one_job_again_and_again(self):
        d = self.json("softmax", "64,70x65", "--host", "--again", *QUICKLY)
        self.assertEqual([r["mode"] for r in d["rows"]], ["host"] * 2)
        self.assertEqual({r["samples"] for r in d["rows"]}, {int(QUICKLY[QUICKLY.index("--reps") + 1])})

    def test_host_to_host(self):
        d = self.json("gemm", "--shape", "256,32x64x16", "--host", "--kernel", "all", *QUICKLY)
        self.assertEqual([r["mode"] for r in d["rows"]], 4 * ["host"])
        self.assertIsNone(d["ceilings"]["memory_gbytes_per_s"])  # nothing that bounds a wall time
        for r in d["rows"]:
            self.assertIsNone(r["ceiling_percent"])
            self.assertGreater(r["median_us"], r["receipt"]["compute_us"])
            self.assertGreater(r["peer_percent"], 0)

    def test_path(self):
        d = self.json("path", "--count", "30")
        jobs = {(j["op"], j["dtype"], j["size"], j["ops"], j["resident"]): j for j in d["jobs"]}
        self.assertTrue({op for op, *_ in jobs} >= {"gemm", "softmax", "add", "transpose", "copy"})
        for job in jobs.values():
            for times in ("wall", "new_job", "new_job_to_start"):
                self.assertLessEqual(job[times]["min_us"], job[times]["p99_us"])
            self.assertLess(job["lost"]["min_us"], job["wall"]["p50_us"])
        one, many = (jobs["gemm", "f32", size, ops, True]["new_job_to_start"]["min_us"] for size, ops in ((64, 1), (8, 32)))
        self.assertGreater(many, 2 * one)  # receipts count from before a message is decoded and its ops are planned
        self.assertEqual([(r["clients"], r["out"]) for r in d["rates"]], [(1, 1), (1, 64), (4, 1), (16, 1), (16, 16)])
        self.assertTrue(all(r["per_second"] > 0 and r["worst_p99_us"] >= r["p50_us"] > 0 for r in d["rates"]))

    def test_one_crowd(self):
        for words, crowd in ((["--clients", "3", "--out", "2"], (3, 2)), (["--out", "5"], (1, 5)), (["--clients", "2"], (2, 1))):
            d = self.json("path", *words)
            self.assertEqual((d["jobs"], [(r["clients"], r["out"]) for r in d["rates"]]), ([], [crowd]))
            self.assertGreater(d["rates"][0]["per_second"], 0)
        out = self.bench("path", "--clients", "2", "--spin", "1000").stdout.splitlines()
        self.assertEqual([line.split(":")[0] for line in out], ["cpu; a client that spins", "2 clients with 1 in flight"])
        for words in (["--clients", "0"], ["--clients", "17"], ["--out", "0"], ["--out", "65"], ["--out", str(1 << 32)]):
            self.assertIn(words[0], self.bench("path", *words, code=USAGE).stderr)

    def test_ipc(self):
        d = self.json("ipc", "--count", "50")
        self.assertGreater(d["echo"]["p50_us"], 0)

    def test_text(self):
        out = self.bench("softmax", "7x100,300", "--kernel", "all", "--host", "--seed", "77", *QUICKLY).stdout
        self.assertIn("softmax f32 on cpu", out)
        self.assertIn("seed 77", out)
        lines = out.splitlines()
        columns = next(i for i, line in enumerate(lines) if line.startswith("shape "))
        for unit in ("min µs", "median µs", "GB/s", "% ceiling", "% peer", "max error"):
            self.assertIn(unit, lines[columns])
        self.assertEqual([line.split()[:3] for line in lines[columns + 1:]],
                         [[s, k, "host"] for s in ("7x100", "300x300") for k in KERNELS["softmax"]])

    def test_without_the_check(self):
        [r] = self.json("add", "9x9", "--host", "--no-check", *QUICKLY)["rows"]
        self.assertIsNone(r["max_error"])
        self.assertTrue(r["measured"])


class Reports(BenchTest):
    def test_csv_is_self_contained(self):
        rows = self.csv("transpose", "64,128,256", "--kernel", "all", "--cache", "warm", "--seed", "9", *FEW)
        self.assertEqual(len(rows), 6)
        for r in rows:
            self.assertEqual((r["op"], r["dtype"], r["device"], r["seed"]), ("transpose", "f32", "cpu", "9"))
            self.assertGreater(float(r["memory_gbytes_per_s"]), 0)
            self.assertGreater(float(r["gbytes_per_s"]), 0)
            self.assertEqual(None in r.values(), False)

    def test_failures_are_documents(self):
        r = self.bench("add", "3", "--device", "gpu7", "--json", code=FAILED)
        d = json.loads(r.stdout)
        self.assertEqual((d["verb"], d["ok"], d["exit_status"]), ("bench", False, FAILED))
        self.assertIn("gpu7", d["error"])
        self.assertEqual(r.stderr, f"kops-bench add: {d['error']}\n")

    def test_help_and_version(self):
        out = self.bench("-h").stdout
        for name in ("ipc", "beside", *KERNELS):
            self.assertIn(f"\n  {name} ", out)
            self.assertIn(f"Usage: kops-bench {name} ", self.bench(name, "-h").stdout)
        self.assertRegex(self.bench("-V").stdout, r"^kops-bench \d+\.\d+\.\d+\n$")


class Beside(BenchTest):
    """kops-bench beside, with a socket that is open to every user."""
    open_socket = True
    NOBODY = 65534
    LOADS = ("gemm:f32:64x32x16:x2", "softmax:f16:30x100:anew", "add:f64:64:host")
    neighbour = NOBODY if os.geteuid() == 0 else os.geteuid()

    def jobs_of(self, uid):
        user = self.control.list_users().get(uid)
        return user["usage"]["jobs_done"] if user else 0

    def check_light(self, light, count):
        wall = light["wall"]
        self.assertTrue(30 <= light["jobs"] <= count)  # fewer where all are slow
        self.assertTrue(0 <= light["late"] < light["jobs"])
        self.assertTrue(0 < wall["min_us"] <= wall["p50_us"] <= wall["p99_us"] <= wall["max_us"])
        self.assertTrue(light["per_second"] > 0 and light["device_share"] > 0)

    def test_light_user(self):
        before = self.jobs_of(self.neighbour)
        d = self.json("beside", "--count", "40", "--every", "500", "--out", "3", *self.LOADS)
        self.assertEqual((d["bench"], d["device"], d["ok"], d["two"]), ("beside", "cpu", True, False))
        self.assertEqual((d["uid"], d["heavy_uid"]), (os.geteuid(), self.neighbour))
        self.assertEqual((d["out"], d["every_us"], d["size"]), (3, 500, 64))
        self.assertEqual(d["note"] is None, self.neighbour != os.geteuid())
        self.check_light(d["quiet"], 40)
        self.assertEqual([(r["load"], r["why"]) for r in d["loads"]], [(load, None) for load in self.LOADS])
        for r in d["loads"]:
            self.check_light(r["light"], 40)
            self.assertIn(r["kernel"], KERNELS[r["load"].split(":")[0]])
            self.assertGreater(r["alone_per_second"], 0)
            self.assertAlmostEqual(r["kept"], r["beside_per_second"] / r["alone_per_second"])
        self.assertGreater(self.jobs_of(self.neighbour), before + 3 * 3)

    def test_two_heavy_users(self):
        before = self.jobs_of(os.geteuid()), self.jobs_of(self.neighbour)
        d = self.json("beside", "--two", "gemm:f32:100")
        [r] = d["loads"]
        self.assertEqual([u["uid"] for u in r["users"]], [os.geteuid(), self.neighbour])
        for share in ("share_of_jobs", "share_of_device"):
            self.assertAlmostEqual(sum(u[share] for u in r["users"]), 1)
            self.assertTrue(all(0 < u[share] < 1 for u in r["users"]))
        self.assertAlmostEqual(r["together"], sum(u["per_second"] for u in r["users"]) / r["alone_per_second"])
        self.assertGreater(self.jobs_of(os.geteuid()), before[0] + 3)
        self.assertGreater(self.jobs_of(self.neighbour), before[1] + 3)
        self.assertNotIn("quiet", d)

    def test_text(self):
        lines = self.bench("beside", "--count", "30", *self.LOADS[:2]).stdout.splitlines()
        self.assertIn(f"a product of 64³ every 300 µs (uid {os.geteuid()}), up to 30 times, beside a heavy user "
                      f"(uid {self.neighbour}) with 2 jobs out", lines[0])
        self.assertEqual([line.split()[0] for line in lines[1:5]], ["beside", "nothing", *self.LOADS[:2]])
        self.assertEqual([len(line.split()) for line in lines[2:5]], [7, 10, 10])
        lines = self.bench("beside", "--two", "add:9x9").stdout.splitlines()
        self.assertIn(f"two heavy users (uid {os.geteuid()} and {self.neighbour})", lines[0])
        self.assertEqual((lines[2].split()[0], len(lines[2].split())), ("add:9x9", 7))

    def test_what_does_not_fit_is_a_row_with_a_reason(self):
        large = "add:f32:8192x4096"
        fits, does_not = self.json("beside", "--count", "1", "add:8", large)["loads"]
        self.assertEqual((fits["why"], does_not["load"]), (None, large))
        self.assertIn("max-resident-per-uid", does_not["why"])
        d = self.json("beside", "--two", large, code=FAILED)
        self.assertFalse(d["ok"])
        self.assertIn("none of the loads", self.bench("beside", "--count", "1", large, code=FAILED).stderr)

    def test_wrong_words(self):
        for words, sentence in ((["--count", "0"], "--count takes 1 to 1000000"), (["--count", "1000001"], "--count takes"),
                                (["--every", "0"], "--every takes 1 to"), (["--every", "10000001"], "--every takes"),
                                (["--out", "0"], "--out takes 1 to 64"), (["--out", "65"], "--out takes 1 to 64"),
                                (["--uid", str((1 << 32) - 1)], "--uid takes 0 to"), (["--uid", "nobody"], "--uid takes a whole"),
                                (["--two", "--count", "9"], "whom --two has not"), (["gemm:64", "gem:64"], "did you mean 'gemm'?"),
                                (65 * ["add:8"], "up to 64 loads")):
            self.assertIn(sentence, self.bench("beside", *words, code=USAGE).stderr)
        self.assertIn("gpu7", self.bench("beside", "--device", "gpu7", "add:8", code=FAILED).stderr)
        self.assertIn("nowhere", self.bench("beside", "--socket", self.path("nowhere"), "add:8", code=CONNECT).stderr)


class BesideOneUser(BenchTest):
    """Where the socket is not open to others."""

    def test_root_stays_alone(self):
        r = self.bench("beside", "--count", "1", "--json", "add:8")
        d = json.loads(r.stdout)
        self.assertEqual(d["heavy_uid"], os.geteuid())
        self.assertIn(f"both are uid {os.geteuid()}, one user to kopsd", d["note"])
        self.assertIn(d["note"], r.stderr)
        self.assertEqual("ermission denied" in d["note"], os.geteuid() == 0)

    def test_the_uid_that_was_asked_for(self):
        self.bench("beside", "--count", "1", "--uid", str(os.geteuid()), "add:8")
        if os.geteuid() == 0:
            self.assertIn("ermission denied", self.bench("beside", "--uid", "61001", "add:8", code=CONNECT).stderr)
        else:
            self.assertIn("--uid needs root", self.bench("beside", "--uid", "0", "add:8", code=USAGE).stderr)


class Choice(BenchTest):
    """kops-bench OP --random: what the daemon's choice loses."""

    def test_losses_follow_from_the_figures(self):
        n = 2 if harness.QUICK else 6
        d = self.json("gemm", "--random", str(n), "--seed", "7", *FEW)
        self.assertEqual((d["seed"], d["measured"], len(d["shapes"])), (7, n, n))
        for s in d["shapes"]:
            extents = [int(e) for e in s["shape"].split("x")]
            self.assertEqual(len(extents), 3)
            self.assertFalse(any(e & (e - 1) == 0 for e in extents))
            us = {k["kernel"]: k["median_us"] for k in s["kernels"]}
            self.assertEqual(s["kernels"][0]["kernel"], s["auto"])
            self.assertEqual(us[s["fastest"]], min(us.values()))
            self.assertAlmostEqual(s["loss_percent"], 100 * (us[s["auto"]] / us[s["fastest"]] - 1), delta=1e-6)
        losses = sorted(s["loss_percent"] for s in d["shapes"])
        self.assertEqual((d["max_loss_percent"], d["median_loss_percent"]), (losses[-1], losses[(n - 1) // 2]))
        self.assertEqual(d["more_than_5_percent"], sum(loss > 5 for loss in losses))
        again = self.json("gemm", "--random", str(n), "--seed", "7", "--no-check", *FEW)
        self.assertEqual([s["shape"] for s in again["shapes"]], [s["shape"] for s in d["shapes"]])

    def test_kernel_far_behind_is_left_out_of_larger_shapes(self):
        # 16 MFLOP, then 405: on the first the plain loop takes some 60 times as long as OpenBLAS. The limit is 20.
        d = self.json("gemm", "--random", "2", "--seed", "6", "--no-check", "--reps", "1", "--warmup", "0")
        smaller, larger = ({k["kernel"]: k["median_us"] for k in s["kernels"]} for s in d["shapes"])
        self.assertEqual(set(smaller), set(KERNELS["gemm"]))
        if smaller["reference"] < 30 * smaller["openblas"]:
            self.skipTest(f"other programs took the CPU: {smaller}")
        self.assertEqual({s["auto"] for s in d["shapes"]}, {"openblas"})
        self.assertEqual(set(larger), {"openblas"})

    def test_csv_has_every_figure(self):
        r = self.bench("softmax", "--random", "4", "--seed", "3", "--csv", *FEW)
        rows = list(csv.DictReader(io.StringIO(r.stdout)))
        self.assertIn("4 shapes from seed 3", r.stderr)
        self.assertEqual(len({row["shape"] for row in rows}), 4)
        for shape in {row["shape"] for row in rows}:
            of_shape = [row for row in rows if row["shape"] == shape]
            self.assertEqual([row["auto"] for row in of_shape], ["yes"] + ["no"] * (len(of_shape) - 1))
            [best] = [row for row in of_shape if row["fastest"] == "yes"]
            self.assertEqual(float(best["median_us"]), min(float(row["median_us"]) for row in of_shape))
            for row in of_shape:
                self.assertEqual((row["wrong"], row["larger_errors"]), ("no", "no"))

    def test_text(self):
        for op in ("reduce",) if harness.QUICK else ("transpose", "add", "copy", "reduce"):
            lines = self.bench(op, "--random", "2", "--seed", "5", "--no-check", *FEW).stdout.splitlines()
            self.assertIn("seed 5", lines[1])
            self.assertEqual(lines[3].split(), ["shape", "auto", "median", "fastest", "median", "loss", "%"])
            self.assertRegex(lines[-1], r"2 shapes from seed 5: loss median \S+ %, .*; more than 5 % at \d$")


class Refusals(BenchTest):
    def test_what_does_not_fit_is_a_row_with_a_reason(self):
        d = self.json("add", "8192x4096,16x16", "--kernel", "all", "--cache", "warm", *QUICKLY)
        self.assertTrue(d["ok"])
        self.assertEqual([r["measured"] for r in d["rows"]], [False, False, True, True])
        for r in d["rows"][:2]:
            self.assertIsNone(r["median_us"])
            self.assertIsNone(r["gbytes_per_s"])
            self.assertGreater(len(r["note"]), 10)
        rows = self.csv("add", "8192x4096,16x16", "--cache", "warm", *QUICKLY)
        self.assertEqual([r["median_us"] == "" for r in rows], [True, False])
        self.assertGreater(len(rows[0]["note"]), 10)

    def test_nothing_measured_is_a_failure(self):
        d = self.json("softmax", "64", "--dtype", "i32", "--kernel", "all", "--host", code=FAILED)
        self.assertFalse(d["ok"])
        self.assertEqual([r["kernel"] for r in d["rows"]], KERNELS["softmax"])
        for r in d["rows"]:
            self.assertIn("i32", r["note"])

    def test_wrong_words(self):
        for args, words in [
                (("gemm", "64", "--kernel", "openblas,naive"), ("'naive'", "reference, openblas, and 'all'")),
                (("gemm", "64x64"), ("'64x64' is not a valid shape", "MxNxK")),
                (("add", "64x0"), ("'64x0' is not a valid shape", "ROWSxCOLUMNS")),
                (("add", "--table", "sed"), ("no table 'sed'", "seed")),
                (("add",), ("needs a shape", "--table seed")),
                (("add", "3", "--shape", "4"), ("give one of them",)),
                (("add", "3", "--table", "seed"), ("give one of them",)),
                (("add", "3", "--cache", "hot"), ("cold, warm or both",)),
                (("add", "3", "--cache", "warm", "--host"), ("--host",)),
                (("add", "3", "--json", "--csv"), ("--json and --csv",)),
                (("add", "3", "--random", "4"), ("give one of them",)),
                (("add", "--random", "0"), ("--random takes 1 to",)),
                (("add", "--random", "2", "--host"), ("--host",)),
                (("add", "3", "--reps", "0"), ("--reps",)),
                (("add", "3", "--launches", "0"), ("--launches takes 1 to 32",)),
                (("add", "3", "--launches", "33"), ("--launches takes 1 to 32",)),
                (("add", "3", "--launches", "2", "--host"), ("--launches is for", "--host")),
                (("add", "3", "--again"), ("--again is for --host",)),
                (("add", "3", "--resident"), ("--resident",)),
                (("ipc", "64"), ("no shape",)),
                (("divide", "3"), ("no benchmark 'divide'", "`kops-bench -h`")),
                (("reduced", "3"), ("no benchmark 'reduced'", "did you mean 'reduce'?")),
                (("reduce", "4x4", "--repz", "3"), ("unknown option '--repz'", "did you mean '--reps'?")),
                (("reduce", "4x4", "--reps", "few"), ("--reps takes a whole number below 2^64, not 'few'",)),
                ((), ("no benchmark given",))]:
            with self.subTest(args=args):
                r = self.bench(*args, code=USAGE)
                for w in words:
                    self.assertIn(w, r.stderr)
        self.assertIn("gpu7", self.bench("add", "3", "--device", "gpu7", code=FAILED).stderr)

    def test_the_table_stops_early_on_the_cpu(self):
        r = self.bench("copy", "--table", "seed", "--host", "--csv", "--reps", "1", "--warmup", "0")
        shapes = [row["shape"] for row in csv.DictReader(io.StringIO(r.stdout))]
        self.assertEqual(shapes[0], "64x1024")
        self.assertEqual(shapes[-1], "16384x1024")  # 128 MiB
        self.assertIn("256 MiB", r.stderr)


if __name__ == "__main__":
    harness.main()
