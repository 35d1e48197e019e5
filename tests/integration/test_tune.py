"""The tuning table: `kops-bench tune` writes it, kopsd chooses kernels by it, and nothing that stands in it does harm."""
import json
import os
import signal
import subprocess
import time
import unittest

import harness
import wire

OK, FAILED, USAGE = 0, 1, 2
HEAD = "kops tuning table 1\n"
MEASURED = "device cpu: measurements of"


class TuneTest(harness.DaemonTest):
    settings = {"max_resident_per_uid": "256M"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.table = os.path.join(cls.daemon.folder, "tuning")

    def setUp(self):
        super().setUp()
        self.session = self.client()
        self.seen = len(self.daemon.log())

    def tearDown(self):
        self.daemon.reload(tuning_table="")
        if os.path.isdir(self.table):
            os.rmdir(self.table)
        elif os.path.lexists(self.table):
            os.remove(self.table)
        super().tearDown()

    def tune(self, *args, code=OK, path=None):
        r = subprocess.run([harness.KOPS_BENCH, "tune", "-o", path or self.table, *args], capture_output=True,
                           env=harness.client_env(self.daemon.socket), timeout=250, text=True)
        self.assertEqual(r.returncode, code, f"{args}: {r.stderr}")
        return r

    def title(self, daemon=None, driver=""):
        [cpu] = self.session.describe()["devices"]
        return f"[{daemon or self.session.welcome['daemon']} on {cpu['description']}{driver}]\n"

    def write(self, text):
        with open(self.table, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())

    def read(self):
        with open(self.table, encoding="utf-8") as f:
            return f.read()

    def apply(self):
        """Reloads; what the log says of it."""
        before = len(self.daemon.log())
        self.daemon.reload(tuning_table=self.table)
        return self.daemon.log()[before:].decode()

    def multiply(self, n, **options):
        """The receipt of an n×n product."""
        c = self.session
        a, y = c.import_new(4 * n * n), c.import_new(4 * n * n)
        v = [wire.view(b, [n, n]) for b in (a, a, y)]
        receipt = c.submit(wire.gemm(*v, kernel=options.pop("kernel", "")), **options)
        c.drop(a)
        c.drop(y)
        return receipt["ops"][0]

    def class_of(self, n):
        return self.multiply(n, timed=True)["shape_class"]


class Choosing(TuneTest):
    def test_timed_receipts_tell_the_class(self):
        square = "1x64x64:2"
        self.assertEqual(self.class_of(64), f"gemm/f32/f32/{square}/{square}/{square}")
        self.assertEqual(self.class_of(60), self.class_of(64))
        self.assertEqual(self.class_of(61), self.class_of(64) + "/unaligned")
        self.assertEqual(self.multiply(64)["shape_class"], "")

    def test_the_fastest_in_the_table_runs(self):
        self.assertEqual(self.multiply(64)["kernel"], "openblas")
        self.write(HEAD + self.title() + f"{self.class_of(64)} openblas 2 dodo 0.5 reference 1\n")
        self.assertIn(f"{MEASURED} 1 classes of shapes in {self.table}", self.apply())
        op = self.multiply(64)
        self.assertEqual(op["kernel"], "reference")
        self.assertEqual(op["why"], "fastest of 2 measured for this class of shapes (1 µs; openblas 2 µs)")
        self.assertEqual(op["passed_over"], "openblas")
        self.assertEqual(self.multiply(56)["kernel"], "reference")  # of the same class
        for n in (63, 32):
            self.assertEqual(self.multiply(n)["kernel"], "openblas")
        pinned = self.multiply(64, kernel="openblas")
        self.assertEqual((pinned["kernel"], pinned["why"]), ("openblas", "asked for by name"))
        os.remove(self.table)
        self.assertIn("no tuning table", self.apply())
        self.assertEqual(self.multiply(64)["kernel"], "openblas")

    def test_every_op_of_a_job_is_looked_up(self):
        self.write(HEAD + self.title() + f"{self.class_of(64)} reference 1\n{self.class_of(32)} openblas 1\n")
        self.apply()
        c = self.session
        a, y = c.import_new(4 * 64 * 64), c.import_new(4 * 64 * 64)
        ops = [wire.gemm(*[wire.view(b, [n, n]) for b in (a, a, y)]) for n in (64, 32, 64, 16)]
        kernels = [op["kernel"] for op in c.submit(ops)["ops"]]
        self.assertEqual(kernels, ["reference", "openblas", "reference", "openblas"])

    def test_a_receipt_of_many_timed_ops_fits(self):
        c = self.session
        a, y = c.import_new(4 * 64 * 64), c.import_new(4 * 64 * 64)
        op = wire.gemm(*[wire.view(b, [1, 64, 64]) for b in (a, a, y)])
        receipt = c.submit([op] * 64, timed=True)
        self.assertEqual(len(receipt["ops"]), 64)
        self.assertTrue(receipt["ops"][0]["shape_class"])


class Tables(TuneTest):
    def test_what_is_no_table_is_void(self):
        line = f"{self.class_of(64)} reference 1\n"
        good = HEAD + self.title() + line
        for text, words in [
                (b"", "line 1 is not"),
                (b"\0" * 5000, "line 1 is longer"),
                (os.urandom(4096), "is void: line 1"),
                (good.replace("table 1", "table 2"), "line 1 is not"),
                (good + "x" * 5000, "line 4 is longer"),
                (good.encode() + b"\0\n", "line 4 holds a NUL byte"),
                (good + "gemm fast\n", "line 4 begins with no class"),
                (good + line[:-3], "line 4 has no time"),
                (good + line.replace(" 1\n", " nan\n"), "line 4 has no time"),
                (good + self.title(), "line 4 begins a section that is there already"),
                (good + "#" * 2000 + "\n" + ("# filler\n" * (1 << 21)), "no file of at most ")]:
            with self.subTest(words=words):
                self.write(text)
                log = self.apply()
                self.assertIn(words, log)
                self.assertIn(" tune`", log)  # the next step
                self.assertEqual(self.multiply(64)["kernel"], "openblas")
        self.write(good)
        self.assertIn(MEASURED, self.apply())
        self.assertEqual(self.multiply(64)["kernel"], "reference")

    def test_what_is_no_file_is_void(self):
        os.mkdir(self.table)
        self.assertIn("is no file", self.apply())
        os.rmdir(self.table)
        os.mkfifo(self.table)
        self.assertIn("is no file", self.apply())
        os.remove(self.table)
        os.symlink(self.table, self.table)
        self.assertIn("cannot read the tuning table", self.apply())
        self.assertEqual(self.multiply(64)["kernel"], "openblas")

    def test_others_measurements_do_not_count(self):
        line = f"{self.class_of(64)} reference 1\n"
        for title, words in [(self.title("kopsd 0.0.9"), "of another version of kopsd or of its driver"),
                             (self.title(driver=", driver 9"), "of another version of kopsd or of its driver"),
                             (f"[{self.daemon.version()} on NVIDIA Abacus, driver 1]\n", "holds no measurements of it")]:
            self.write(HEAD + title + line)
            self.assertIn(words, self.apply())
            self.assertEqual(self.multiply(64)["kernel"], "openblas")
        self.write(HEAD + title + line + self.title() + line)
        self.assertIn(MEASURED, self.apply())
        self.assertEqual(self.multiply(64)["kernel"], "reference")

    def test_a_void_table_at_start(self):
        self.write("nonsense")
        d = harness.Daemon(tuning_table=self.table)
        self.addCleanup(d.remove)
        d.start()
        self.assertIn(b"line 1 is not", d.log())
        c = d.connect()
        self.addCleanup(c.close)
        self.assertEqual(len(c.describe()["devices"]), 1)
        self.assertEqual(d.stop(), 0)


class Tuning(TuneTest):
    def test_measures_and_kopsd_chooses_by_it(self):
        d = json.loads(self.tune("gemm", "--time-limit", "4s", "--json").stdout)
        self.assertEqual((d["verb"], d["ok"], d["device"], d["interrupted"]), ("tune", True, "cpu", False))
        [gemm] = d["ops"]
        self.assertGreater(gemm["classes"], 0)
        lines = self.read().splitlines()
        self.assertEqual((lines[0] + "\n", lines[1] + "\n"), (HEAD, self.title()))
        self.assertRegex(lines[2], r"^# measured \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
        self.assertEqual(len(lines) - 3, gemm["classes"])
        for line in lines[3:]:
            self.assertRegex(line, r"^gemm/\S+( (openblas|reference) \d+\.\d{3}){2}$")
            self.assertLessEqual(float(line.split()[2]), float(line.split()[4]))
        self.assertEqual(len({line.split()[0] for line in lines[3:]}), gemm["classes"])
        self.assertIn(self.class_of(64) + " ", self.read())
        self.assertIn(f"{MEASURED} {gemm['classes']} classes", self.apply())
        op = self.multiply(64)
        self.assertEqual(op["kernel"], "openblas")
        self.assertRegex(op["why"], r"^fastest of 2 measured for this class of shapes \(\S+ µs; reference \S+ .?s\)$")

    def test_a_wrong_choice_is_found_and_mended(self):
        self.write(HEAD + self.title() + f"{self.class_of(64)} reference 1 openblas 2\n")
        self.apply()
        self.assertEqual(self.multiply(64)["kernel"], "reference")
        [gemm] = json.loads(self.tune("gemm", "--time-limit", "3s", "--json").stdout)["ops"]
        self.assertGreaterEqual(gemm["changed"], 1)
        self.assertGreater(gemm["largest_gain"], 1.5)
        self.assertEqual(gemm["largest_gain_class"], self.class_of(64))
        self.apply()
        self.assertEqual(self.multiply(64)["kernel"], "openblas")

    @unittest.skipIf(harness.QUICK, "sanitizers slow down the one and not the other")
    def test_the_loss_of_a_wrong_choice_is_told(self):
        bench = [harness.KOPS_BENCH, "--socket", self.daemon.socket, "softmax", "--random", "1", "--seed",
                 "11", "--reps", "3", "--json"]
        before = json.loads(subprocess.run(bench, capture_output=True, check=True, text=True).stdout)
        [shape] = before["shapes"]
        self.assertEqual((shape["auto"], shape["fastest"]), ("vectorised", "vectorised"))
        self.write(HEAD + self.title() + f"{shape['shape_class']} reference 1\n")
        self.apply()
        after = json.loads(subprocess.run(bench, capture_output=True, check=True, text=True).stdout)
        [shape] = after["shapes"]
        self.assertEqual((shape["auto"], shape["fastest"]), ("reference", "vectorised"))
        self.assertIn("the one measured", shape["why"])
        self.assertGreater(after["max_loss_percent"], 5)
        self.assertEqual(after["more_than_5_percent"], 1)

    def test_text(self):
        out = self.tune("add", "softmax", "--time-limit", "1s").stdout
        self.assertEqual([line.split()[0] for line in out.splitlines()[:3]], ["op", "add", "softmax"])
        self.assertIn("`systemctl reload kopsd`", out)

    def test_what_is_not_measured_anew_stays(self):
        other = "[kopsd 9 on NVIDIA Abacus]\n# by hand\nabc def\n"
        product, sum_ = self.class_of(64), "add/f32/1x1x1x1024:3/1x1x1x1024:3/1x1x1x1024:3"
        self.write(HEAD + other + self.title() + f"# old\n{product} reference 1\n{sum_} reference 1\n" + other)
        os.chmod(self.table, 0o4640)
        self.tune("add", "--time-limit", "1s")
        text = self.read()
        self.assertTrue(text.startswith(HEAD + other + other + self.title()))
        self.assertNotIn("# old", text)
        self.assertEqual(text.count(f"\n{product} reference 1\n"), 1)
        self.assertEqual(text.count(f"\n{sum_} "), 1)
        self.assertNotIn(f"\n{sum_} reference 1\n", text)
        self.assertEqual(os.stat(self.table).st_mode & 0o7777, 0o644)
        self.assertIn(MEASURED, self.apply())

    def test_says_what_is_wrong_before_it_measures(self):
        done = self.control.stats()["devices"][0]["jobs_done"]
        self.write("precious\n")
        for path, words in (("/nowhere/tuning", "cannot write /nowhere/tuning: No such file"),
                            (self.table + "/tuning", "tuning/tuning: Not a directory")):
            r = self.tune(path=path, code=FAILED)
            self.assertIn(words, r.stderr)
            self.assertIn("run it as root", r.stderr)
            self.assertIn("give --output FILE and set tuning-table = FILE", r.stderr)
        self.assertIn("is no tuning table", self.tune(code=FAILED).stderr)
        self.assertEqual(self.read(), "precious\n")
        os.rename(self.table, self.table + "2")
        os.symlink(self.table + "2", self.table)
        self.addCleanup(lambda: os.path.exists(self.table + "2") and os.remove(self.table + "2"))
        refusal = self.tune(code=FAILED).stderr
        self.assertIn("is a symbolic link", refusal)
        self.assertNotIn("root", refusal)
        os.remove(self.table + "2")
        for op in ("fma", "copy"):
            self.assertIn(f"'{op}' is not gemm", self.tune(op, code=USAGE).stderr)
        self.assertIn("gpu7", self.tune("--device", "gpu7", path=self.table + "2", code=FAILED).stderr)
        self.assertFalse(os.path.exists(self.table + "2"))
        self.assertEqual(self.control.stats()["devices"][0]["jobs_done"], done)

    def begin(self, *args, jobs=20, **options):
        """A run that has measured something."""
        begun = self.control.stats()["devices"][0]["jobs_done"]
        p = subprocess.Popen([harness.KOPS_BENCH, "--socket", self.daemon.socket, "tune", "-o", self.table, "--json",
                              *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stderr.close)
        self.assertTrue(harness.eventually(
            lambda: self.control.stats()["devices"][0]["jobs_done"] > begun + jobs, 60, 0.02))
        return p

    def test_what_another_run_wrote_stays(self):
        product = self.class_of(64)
        p = self.begin("add", "--time-limit", "2s")
        self.write(HEAD + self.title() + f"{product} reference 1\n")
        self.assertEqual(p.wait(60), OK, p.stderr.read())
        self.assertIn(f"\n{product} reference 1\n", self.read())
        self.assertIn("\nadd/f32/", self.read())

    def test_no_link_is_followed(self):
        victim = self.table + "-victim"
        self.addCleanup(lambda: os.remove(victim))
        with open(victim, "w", encoding="utf-8") as f:
            f.write(HEAD)
        p = self.begin("add", "--time-limit", "2s")
        os.symlink(victim, self.table)
        self.assertEqual(p.wait(60), FAILED)
        self.assertIn("is a symbolic link", p.stderr.read())
        with open(victim, encoding="utf-8") as f:
            self.assertEqual(f.read(), HEAD)

    def test_an_ignored_interrupt_stays_ignored(self):
        p = self.begin("add", "--time-limit", "2s", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        p.send_signal(signal.SIGINT)
        self.assertFalse(json.loads(p.stdout.read())["interrupted"])
        self.assertEqual(p.wait(60), OK)

    def test_an_interrupt_keeps_what_was_measured(self):
        p = self.begin(jobs=200)
        start = time.monotonic()
        p.send_signal(signal.SIGINT)
        d = json.loads(p.stdout.read())
        self.assertEqual(p.wait(60), OK)
        self.assertLess(time.monotonic() - start, harness.count(5, 50))
        self.assertTrue(d["interrupted"])
        self.assertGreater(sum(op["classes"] for op in d["ops"]), 0)
        self.assertIn(MEASURED, self.apply())


if __name__ == "__main__":
    harness.main()
