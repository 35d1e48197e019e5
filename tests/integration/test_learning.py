"""What jobs showed about kernels: kept over restarts in the cache directory, and taught by `kops-client tune`."""
import json
import os
import signal
import subprocess
import time
import unittest

from support import harness, wire

SIMULATED = os.environ["KOPS_TEST_KOPSD_SIMULATED"]
OK, FAILED, USAGE = 0, 1, 2
JOBS = 16  # of a shape until its trials are over, where one rival wins
N = 128


class Learning(unittest.TestCase):
    def setUp(self):
        harness.KOPSD = SIMULATED
        self.daemon = harness.Daemon(devices="gpu0,cpu")
        self.addCleanup(self.daemon.remove)
        self.cache = os.path.join(self.daemon.folder, "cache")
        os.mkdir(self.cache)
        self.file = os.path.join(self.cache, "learned-gpu0")
        self.daemon.settings["cache_directory"] = self.cache
        with open(os.path.join(self.daemon.folder, "rivals"), "w", encoding="utf-8") as f:
            f.write("openblas 100000 3000\nreference 110000 300\n")

    def start(self, **env):
        if os.path.exists(self.daemon.log_path):
            os.remove(self.daemon.log_path)
        self.daemon.start(SIMULATED_GPU=self.daemon.folder, **env)

    def restart(self):
        self.assertEqual(self.daemon.stop(), 0)
        self.start()

    def multiply(self, jobs):
        """What the receipts say of products of 128×128 matrices."""
        c = self.daemon.connect()
        x, y = c.import_new(4 * N * N), c.import_new(4 * N * N)
        ops = [c.submit(wire.gemm(*[wire.view(b, [N, N]) for b in (x, x, y)]))["ops"][0] for _ in range(jobs)]
        c.close()
        return [(op["kernel"], bool(op["learning"]), op["why"]) for op in ops]

    def learn(self):
        last = self.multiply(JOBS + 1)[-1]
        self.assertEqual(last[:2], ("reference", False))

    def expect_learnt(self):
        self.assertEqual(self.multiply(1)[0][:2], ("reference", False))

    def expect_unlearnt(self):
        self.assertEqual(self.multiply(1)[0][:2], ("openblas", True))

    def read(self):
        with open(self.file, encoding="utf-8") as f:
            return f.read()

    def write(self, data):
        with open(self.file, "wb") as f:
            f.write(data)


class Restarts(Learning):
    def test_the_first_job_after_a_stop_takes_the_learnt_kernel(self):
        self.start()
        self.expect_unlearnt()
        self.learn()
        self.restart()
        [(kernel, learning, why)] = self.multiply(1)
        self.assertEqual((kernel, learning), ("reference", False))
        self.assertRegex(why, r"^fastest for this shape: \S+ us, openblas took \S+ us$")
        self.assertEqual({kernel for kernel, *_ in self.multiply(2 * JOBS)}, {"reference"})
        self.assertEqual(os.listdir(self.cache), ["learned-gpu0"])
        first, second, *lines = self.read().splitlines()
        self.assertEqual(first, "kops learned 1")
        self.assertEqual(second, f"{self.daemon.version()} on simulated GPU")
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"^gemm [0-9a-f]{16} openblas 0 \S+ 5 reference \S+ \S+ 3$")

    def test_it_is_written_before_a_crash_too(self):
        self.start()
        self.learn()
        self.assertTrue(harness.eventually(lambda: os.path.exists(self.file) and self.read().endswith(" 3\n")))
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()
        self.start()
        self.expect_learnt()

    def test_trials_go_on_after_a_restart(self):
        self.start()
        self.multiply(10)
        self.restart()
        self.assertEqual([learning for _, learning, _ in self.multiply(8)], [True] * 6 + [False] * 2)
        self.expect_learnt()

    def test_a_reload_keeps_it(self):
        self.start()
        self.learn()
        self.daemon.reload()
        self.expect_learnt()

    def test_it_is_not_heeded_without_autotune(self):
        self.start()
        self.learn()
        self.daemon.write_config(autotune=0)
        self.restart()
        self.assertEqual(self.multiply(1)[0][:2], ("openblas", False))
        self.daemon.reload(autotune=1)
        self.expect_learnt()

    def test_an_idle_daemon_writes_nothing(self):
        self.start()
        self.learn()
        self.restart()
        before = os.stat(self.file)
        self.expect_learnt()
        time.sleep(2.5)
        self.assertEqual(self.daemon.stop(), 0)
        after = os.stat(self.file)
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))

    def test_systemd_names_the_folder(self):
        del self.daemon.settings["cache_directory"]
        self.start(CACHE_DIRECTORY=self.cache + ":/nonexistent")
        self.learn()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertTrue(os.path.exists(self.file))

    def test_without_a_folder_it_is_forgotten(self):
        del self.daemon.settings["cache_directory"]
        self.start()
        self.learn()
        self.restart()
        self.expect_unlearnt()
        self.assertEqual(os.listdir(self.cache), [])


class Files(Learning):
    def test_what_does_not_look_so_is_a_line_in_the_log(self):
        self.start()
        self.learn()
        self.assertEqual(self.daemon.stop(), 0)
        good = self.read().encode()
        self.daemon.settings["autotune"] = 0
        self.start()
        for bad, words in [
                (b"", b"line 1 has no newline: the file is truncated; kopsd will measure kernel times again"),
                (os.urandom(5000).replace(b"\n", b"") + b"\n", b"ignoring the invalid file"),
                (good[:-5], b"line 3 has no newline"),
                (good + b"gemm fast\n", b"line 4 does not begin with an op and a shape"),
                (good.replace(b"reference", b"dodo"), b'names a kernel "dodo"'),
                (good.replace(b"kopsd ", b"kopsd 9"), b"another version of kopsd, another device or another driver"),
                (good.replace(b" GPU", b" GPU, driver 5"), b"from another version of kopsd")]:
            self.write(bad)
            seen = len(self.daemon.log())
            self.daemon.reload(autotune=1)  # reads it as a start does
            self.assertIn(words, self.daemon.log()[seen:])
            self.expect_unlearnt()
            self.daemon.reload(autotune=0)
        self.assertEqual(self.daemon.stop(), 0)
        self.write(bad)
        self.daemon.settings["autotune"] = 1
        self.start()
        self.assertIn(words, self.daemon.log())
        self.learn()  # and takes its place
        self.restart()
        self.expect_learnt()

    def test_a_folder_that_cannot_be_written_is_a_line_in_the_log(self):
        self.daemon.settings["cache_directory"] = "/nonexistent"
        self.start()
        self.learn()
        words = b"cannot save measured kernel times to /nonexistent/learned-gpu0: No such file or directory"
        self.assertTrue(harness.eventually(lambda: words in self.daemon.log()))
        self.assertEqual(self.daemon.stop(), 0)


class Changes(Learning):
    """What a kernel takes changes with the data: openblas takes 900 us, and reference 300, or 3000 for other data."""

    def take(self, reference):
        with open(os.path.join(self.daemon.folder, "rivals"), "w", encoding="utf-8") as f:
            f.write(f"openblas 100000 900\nreference 110000 {reference}\n")

    def test_new_jobs_follow(self):
        self.take(300)
        self.start()
        self.learn()
        self.take(3000)
        self.assertEqual(self.multiply(2 * JOBS)[-1][:2], ("openblas", False))
        self.take(300)
        kernels = [kernel for kernel, *_ in self.multiply(200)]
        self.assertEqual((kernels[0], kernels[-1]), ("openblas", "reference"))

    def test_kept_jobs_follow(self):
        self.take(300)
        self.start()
        self.learn()
        c = self.daemon.connect()
        x, y = c.import_new(4 * N * N), c.import_new(4 * N * N)
        c.submit(wire.gemm(*[wire.view(b, [N, N]) for b in (x, x, y)]), prepare=1)

        def took():
            return round(c.run(1)["compute_us"])
        self.assertEqual({took() for _ in range(100)}, {300})
        self.take(3000)
        self.assertEqual([took() for _ in range(2 * JOBS)][-1], 900)
        self.take(300)
        self.assertEqual([took() for _ in range(300)][-1], 300)
        c.close()


class FirstLaunches(Learning):
    """openblas takes 100 us, reference 110, and the first launch of openblas 50 more."""

    def setUp(self):
        super().setUp()
        self.first = os.path.join(self.daemon.folder, "first")
        with open(self.first, "w", encoding="utf-8") as f:
            f.write("50000\n")

    def test_a_new_shape_runs_what_is_ready(self):
        self.start()
        first, *later = self.multiply(3)
        self.assertEqual(first[:2], ("reference", True))
        self.assertEqual(first[2], "110.0 us by estimate; openblas 100.0, but it does not know the shape yet")
        self.assertEqual({kernel for kernel, *_ in later}, {"openblas"})
        self.assertFalse(os.path.exists(self.first))
        self.learn()  # what it would have learnt otherwise

    def test_a_kept_job_is_planned_anew(self):
        self.start()
        c = self.daemon.connect()
        x, y = c.import_new(4 * N * N), c.import_new(4 * N * N)
        views = [wire.view(b, [N, N]) for b in (x, x, y)]
        c.submit(wire.gemm(*views), prepare=1)
        self.assertEqual([round(c.run(1)["compute_us"]) for _ in range(3)], [3000] * 3)
        c.close()

    def test_choices_stay_the_same_without_autotune(self):
        self.daemon.settings["autotune"] = 0
        self.start()
        self.assertEqual({kernel for kernel, *_ in self.multiply(3)}, {"openblas"})
        self.assertTrue(os.path.exists(self.first))


class Tune(Learning):
    def tune(self, *args, code=OK):
        r = subprocess.run([harness.KOPS_CLIENT, "tune", *args], capture_output=True, text=True, timeout=600,
                           env=harness.client_env(self.daemon.socket))
        self.assertEqual(r.returncode, code, f"{args}: {r.stderr}")
        return r

    def test_jobs_teach_it(self):
        self.start()
        lines = self.tune("gemm", f"{N},64x32x16").stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[0], rf"^gemm f32 {N}x{N}x{N}, shared, on gpu0: reference after 18 jobs "
                                   r"\(fastest for this shape: \S+ us, openblas took \S+ us\)$")
        self.assertRegex(lines[1], rf"^gemm f32 {N}x{N}x{N}, resident, on gpu0: reference after 18 jobs")
        self.restart()
        again = self.tune("gemm", str(N)).stdout.splitlines()
        self.assertRegex(again[0], rf"^gemm f32 {N}x{N}x{N}, shared, on gpu0: reference after 1 job \(fastest")

    def test_layouts_types_and_ops_of_a_job(self):
        self.start()
        words = ["gemm", "48", "--dtype", "f64", "--trans-a", "--trans-b", "--ops", "3", "--json"]
        document = json.loads(self.tune(*words).stdout)
        self.assertEqual((document["ok"], document["op"]), (True, "gemm"))
        self.assertEqual([(s["memory"], s["kernel"], s["settled"], s["jobs"]) for s in document["shapes"]],
                         [("shared", "reference", True, 18), ("resident", "reference", True, 18)])

    def test_the_cpu_has_nothing_to_learn(self):
        self.start()
        for op in ("gemm", "softmax", "transpose", "add", "copy", "reduce"):
            for line in self.tune(op, "20x30" if op != "gemm" else "20", "--device", "cpu").stdout.splitlines():
                self.assertIn(" on cpu: ", line)
                self.assertIn(" after 1 job ", line)

    def test_wrong_usage(self):
        self.start()
        for args, words in [(("gem", "4"), "there is no op 'gem'"),
                            (("gemm", "4x4"), "'4x4' is not a valid shape for gemm: write MxNxK"),
                            (("gemm", "0"), "'0' is not a valid shape"),
                            (("softmax", "4", "--trans-a"), "softmax takes neither --trans-a nor --trans-b"),
                            (("gemm", "4", "--ops", "0"), "--ops takes 1 to 64"),
                            (("gemm", "4", "--ops", "65"), "--ops takes 1 to 64"),
                            (("gemm",), "an op and its shapes")]:
            self.assertIn(words, self.tune(*args, code=USAGE).stderr)
        self.assertIn("exceed the limit", self.tune("gemm", "1000000000", code=FAILED).stderr)
        self.assertIn("gpu7", self.tune("gemm", "4", "--device", "gpu7", code=FAILED).stderr)


if __name__ == "__main__":
    harness.main()
