"""Random runs of several sessions at once (support/random_runs.c): on a kopsd that lives, and on one that is killed."""
import os
import random
import subprocess
import time
import unittest

from support import harness

RANDOM_RUNS = os.environ.get("KOPS_TEST_RANDOM_RUNS", "")


class Mixed(unittest.TestCase):
    def setUp(self):
        self.daemon = harness.Daemon()
        self.addCleanup(self.daemon.remove)
        self.daemon.start()

    def begin(self, runs, *how):
        return subprocess.Popen([RANDOM_RUNS, self.daemon.socket, str(runs), *how], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "KOPS_TEST_SEED": str(harness.SEED)})

    def finish(self, program):
        """What it counted; kopsd stops as it should."""
        words = program.communicate()[0].split()
        self.assertEqual(program.returncode, 0)
        self.assertEqual(self.daemon.stop(), 0)
        for mark in harness.SANITIZER_MARKS:
            self.assertNotIn(mark, self.daemon.log())
        print(*words, flush=True)
        return dict(zip(words[::2], map(int, words[1::2])))

    def test_random_runs(self):
        counts = self.finish(self.begin(1000000 if harness.LONG else harness.count(10000, 2000)))
        self.assertEqual(counts.pop("interrupted"), 0)
        if not harness.ON_GPU:
            self.assertEqual(counts.pop("graphs"), 0)
        self.assertGreater(min(counts.values()), 0, counts)

    def test_random_runs_while_kopsd_dies(self):
        program = self.begin(100000 if harness.LONG else harness.count(10000, 1000), "killed")
        rng = random.Random(harness.SEED)
        while program.poll() is None:
            time.sleep(rng.uniform(0.02, 0.4))
            self.daemon.kill_and_start()
        self.finish(program)


if __name__ == "__main__":
    harness.main()
