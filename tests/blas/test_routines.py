"""The BLAS library's routines: a program that is linked with it, beside a daemon that lives, dies or never was."""
import os
import random
import re
import signal
import subprocess
import time
import unittest

import case
from support import harness

ROUTINES = os.environ.get("KOPS_TEST_ROUTINES", "")
COMPLEX = os.environ.get("KOPS_TEST_COMPLEX", "")
SIMULATED = os.environ.get("KOPS_TEST_KOPSD_SIMULATED", "")


def names_of(letters):
    return {f"{before}{letter}{name}{after}" for name in ("gemm", "syrk", "symm", "trsm", "trmm") for letter in letters
            for before, after in (("", "_"), ("cblas_", ""))} | {f"cblas_{letter}gemm_batch" for letter in letters}


NAMES = names_of("sd")
COMPLEX_NAMES = names_of("cz") | {f"{before}{letter}{name}{after}" for name in ("herk", "hemm") for letter in "cz"
                                  for before, after in (("", "_"), ("cblas_", ""))}


class Routines(case.BlasTest):
    def test_every_routine_is_right(self):
        n = harness.count(300, 25)
        out, calls = self.run_program(ROUTINES, "calls", str(n))
        self.assertEqual(out, "")
        self.assertEqual(set(calls), NAMES)
        # Where alpha is 0 the other one has nothing to compute either.
        self.assertTrue(all(c["kopsd"] > 0 and set(c) <= {"kopsd", "invalid or empty", "small"} for c in calls.values()),
                        calls)
        # Triangular ones are calls of others too, which are not counted. One of one row or column has no halves.
        for part in ("trsm", "trmm"):
            self.assertEqual(sum(sum(c.values()) for name, c in calls.items() if part in name), n)
        self.assertEqual(sum(sum(c.values()) for name, c in calls.items() if "tr" not in name and "batch" not in name),
                         3 * n)
        self.assertEqual({name for name, c in calls.items() if "small" in c and "tr" not in name}, set())

    def test_every_complex_routine_is_right(self):
        n = harness.count(300, 40)
        out, calls = self.run_program(COMPLEX, str(n))
        self.assertEqual(out, "")
        self.assertEqual(set(calls), COMPLEX_NAMES)
        self.assertTrue(all(c["kopsd"] > 0 and set(c) <= {"kopsd", "invalid or empty", "small"} for c in calls.values()),
                        calls)
        for part in ("syrk", "herk", "symm", "hemm", "trsm", "trmm", "batch"):
            self.assertEqual(sum(sum(c.values()) for name, c in calls.items() if part in name), n)

    def test_large_matrices(self):
        """By blocks and by threads."""
        out, calls = self.run_program(ROUTINES, "large", str(harness.count(4, 1)), KOPS_BLAS_THREADS="4")
        self.assertEqual(out, "")
        self.assertEqual({why for c in calls.values() for why in c}, {"kopsd", "invalid or empty"})

    def test_invalid_calls_are_reported_as_ever(self):
        out, calls = self.run_program(ROUTINES, "invalid")
        self.assertEqual([(name, int(number)) for name, number in re.findall(
            r"On entry to (\w+) +parameter number +(\d+) had an illegal value\n", out)],
            [("DGEMM", 1), ("DGEMM", 4), ("DGEMM", 8), ("DGEMM", 13), ("DSYRK", 1), ("DSYMM", 7), ("DTRSM", 4), ("DTRMM", 9)])
        self.assertNotIn("line ", out)
        self.assertEqual({name: set(c) for name, c in calls.items() if c["kopsd"]}, {})

    def test_threads(self):
        out, calls = self.run_program(ROUTINES, "threads")
        self.assertEqual(out, "")
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 0)
        self.assertLessEqual({why for c in calls.values() for why in c}, {"kopsd", "invalid or empty", "handles taken"})

    def test_children_of_fork(self):
        out, calls = self.run_program(ROUTINES, "fork")
        self.assertEqual(out, "")
        self.assertEqual(sum(sum(c.values()) for c in calls.values()), 6 * (2 + 3 + 2) * 3)
        self.assertEqual({why for c in calls.values() for why in c}, {"kopsd", "invalid or empty"})

    def test_without_a_daemon(self):
        out, calls = self.run_program(ROUTINES, "calls", "20", KOPS_SOCKET="/nonexistent/kopsd.sock")
        self.assertEqual(out, "")
        self.assertEqual(sum(c["kopsd"] for c in calls.values()), 0)
        self.assertGreater(sum(c.get("kopsd away", 0) for c in calls.values()), 40)

    def test_a_daemon_without_a_gpu_is_left_alone(self):
        out, calls = self.run_program(ROUTINES, "calls", "40", KOPS_BLAS_THRESHOLD="")
        self.assertEqual(out, "")
        self.assertEqual({why for c in calls.values() for why in c} - {"invalid or empty", "small", "kopsd has no GPU"},
                         {"kopsd"})
        self.assertEqual(sum(c["kopsd"] for c in calls.values()), 0)
        self.assertGreater(sum(c.get("kopsd has no GPU", 0) for c in calls.values()), 0)

    def test_settings_that_are_no_numbers(self):
        env = self.environment(KOPS_BLAS_THRESHOLD="many", KOPS_PBLAS_BLOCK="0")
        done = subprocess.run([ROUTINES, "calls", "1"], env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn('ignoring KOPS_BLAS_THRESHOLD="many": expected a number from 0 to inf', done.stderr)
        self.assertIn('ignoring KOPS_PBLAS_BLOCK="0": expected a number from 1 to 65536', done.stderr)

    def test_a_comma_in_the_locale(self):
        """Numbers have a point in the environment, and in what is printed."""
        env = self.environment(KOPS_BLAS_THRESHOLD="0.5", KOPS_BLAS_VERBOSE="2", **case.locale_with_comma(self))
        done = subprocess.run([ROUTINES, "flags"], env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertNotIn("ignored", done.stderr)
        self.assertEqual(case.report(done.stderr), {"dgemm_": {"kopsd": 3}})
        self.assertRegex(done.stderr, r"dgemm_: 3 calls by kopsd in \d+\.\d{3} ms \(288 KiB copied, 0 in place\); 0 by the next BLAS in 0\.000 ms\n")
        self.assertRegex(done.stderr, r"dgemm_ 64 x 64 x 64: kopsd, \d+\.\d us\n")

    def test_no_floating_point_flags(self):
        for threshold in ("0", "0.3", "nan", "1e400", "1e-400", "many", ""):
            with self.subTest(threshold):
                out, calls = self.run_program(ROUTINES, "flags", KOPS_BLAS_THRESHOLD=threshold)
                self.assertEqual(out, "")
                self.assertEqual(sum(calls["dgemm_"].values()), 3)

    def test_silence(self):
        """Who asks for no report gets none, whatever happens."""
        done = subprocess.run([ROUTINES, "calls", "5"], env=self.environment(KOPS_BLAS_VERBOSE="", KOPS_SOCKET="/no"),
                              capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Hangs(case.BlasTest):
    """Calls that wait for a kopsd which is stopped."""
    leaks_checked = False

    def act(self, what):
        # AddressSanitizer does not see that a cancelled thread leaves its frames, and writes to them at its end.
        options = os.environ.get("ASAN_OPTIONS", "") + ":use_sigaltstack=0"
        return self.run_acts([ROUTINES, what], signal.SIGSTOP, signal.SIGCONT, ASAN_OPTIONS=options)

    def test_calls_left_by_a_signal(self):
        """As Ctrl-C does in programs that go on at their prompt. More than there are handles."""
        calls = self.act("jumps")
        self.assertEqual({why for c in calls.values() for why in c} - {"invalid or empty"}, {"kopsd"})
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 5)

    def test_cancelled_threads(self):
        """A product is no cancellation point."""
        calls = self.act("cancel")
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 100)


class Deaths(case.BlasTest):
    leaks_checked = False

    def test_the_daemon_dies_and_nobody_notices(self):
        self.check_death([ROUTINES, "loop"], 20)

    def test_it_dies_between_blocks(self):
        program = subprocess.Popen([ROUTINES, "loop-large"], env=self.environment(KOPS_BLAS_THREADS="3"), bufsize=0,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(program.stdout.read(1), b".")
        time.sleep(random.uniform(0.02, 0.2))
        self.daemon.process.kill()
        self.daemon.wait()
        os.set_blocking(program.stdout.fileno(), False)
        program.stdout.read()  # what was done before
        os.set_blocking(program.stdout.fileno(), True)
        self.assertEqual(program.stdout.read(1) + program.stdout.read(1), b"..")
        self.restart()
        out, err = program.communicate(timeout=600)
        self.assertEqual((program.returncode, out.strip(b".")), (0, b""), err)
        calls = case.report(err.decode())
        self.assertGreater(sum(c.get("kopsd away", 0) for c in calls.values()), 0)


@unittest.skipIf(harness.QUICK or not SIMULATED, "the module of the simulated GPUs has no sanitizers")
class OnGpu(case.BlasTest):
    @classmethod
    def setUpClass(cls):
        cls.kopsd, harness.KOPSD = harness.KOPSD, SIMULATED
        cls.settings = {**cls.settings, "devices": "gpu0"}
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        harness.KOPSD = cls.kopsd


class WithGpu(OnGpu):
    """What is large goes to a daemon that has a GPU; the times decide."""

    def test_large_matrices(self):
        out, calls = self.run_program(ROUTINES, "large", "3", KOPS_BLAS_THREADS="4")
        self.assertEqual(out, "")
        self.assertEqual({why for c in calls.values() for why in c}, {"kopsd", "invalid or empty"})

    def test_small_and_large(self):
        out, calls = self.run_program(ROUTINES, "calls", "64", KOPS_BLAS_THRESHOLD="")
        self.assertEqual(out, "")
        self.assertGreater(sum(c.get("small", 0) for c in calls.values()), 100)
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 0)
        self.assertEqual(sum(c.get("kopsd has no GPU", 0) for c in calls.values()), 0)


class DeathsOnGpu(OnGpu, Deaths):
    """Those of Deaths."""


if __name__ == "__main__":
    unittest.main()
