"""ScaLAPACK, and HPL of Debian's hpcc, under MPI: all ranks share one kopsd."""
import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import case
from support.harness import LONG

PDGEMM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers", "pdgemm.py")
RANKS = 4
SCALAPACK = ctypes.util.find_library("scalapack-openmpi") or ""
HPCC = shutil.which("hpcc") or ""
INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@unittest.skipUnless(shutil.which("mpirun"), "no MPI")
class Mpi(case.BlasTest):
    settings = {"cpu_threads": 1}

    def environment(self, **settings):
        return super().environment(OPENBLAS_NUM_THREADS="1", **AS_ROOT, **settings)

    def run_ranks(self, *command, **settings):
        """What it printed, and the calls of all ranks."""
        settings["LD_PRELOAD"] = case.LIBRARY
        exports = [word for name in settings for word in ("-x", f"{name}={settings[name]}")]
        return self.run_program("mpirun", "--oversubscribe", "-n", str(RANKS), *exports, *command, seconds=600)


@unittest.skipUnless(SCALAPACK, "no ScaLAPACK")
class Scalapack(Mpi):
    SIDE = 4096 if LONG else 512

    def product(self, block=""):
        """How many products it made of one."""
        out, calls = self.run_ranks(sys.executable, PDGEMM, SCALAPACK, str(self.SIDE), "64",
                                    KOPS_PBLAS_BLOCK=block, KOPS_BLAS_THRESHOLD="16")
        self.assertRegex(out, "right .* GFLOP/s")
        self.assertEqual({why for name in calls.values() for why in name}, {"kopsd"}, calls)
        return calls["dgemm_"]["kopsd"]

    def test_products_are_large(self):
        """ScaLAPACK's own blocks have 32 columns."""
        self.assertEqual(self.product(), RANKS * -(-self.SIDE // 512))
        self.assertGreaterEqual(self.product(block="32"), RANKS * self.SIDE // 64)


@unittest.skipUnless(HPCC and os.path.exists(INPUT), "no HPL")
class Hpl(Mpi):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="kops-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write_input(self, **values):
        """Debian's example, with the values of lines that end with these words."""
        with open(INPUT, encoding="utf-8") as f:
            text = f.read()
        for name, value in values.items():
            text = re.sub(rf"(?m)^\S+(?= +{name}$)", str(value), text)
        with open(os.path.join(self.folder, "hpccinf.txt"), "w", encoding="utf-8") as f:
            f.write(text)

    def solve(self, run, side, ranks_a_side):
        self.write_input(Ns=side, NBs=128, Ps=ranks_a_side, Qs=ranks_a_side)
        _, calls = run("env", "-C", self.folder, HPCC)
        with open(os.path.join(self.folder, "hpccoutf.txt"), encoding="utf-8") as f:
            text = f.read()
        self.assertRegex(text, rf"WR\w+ +{side} +128 +{ranks_a_side} +{ranks_a_side} ")
        self.assertRegex(text, r"\|\|Ax-b\|\|.* PASSED")
        self.assertNotIn("FAILED", text)
        self.assertGreater(calls["cblas_dgemm"]["kopsd"], 0, calls)
        self.assertLessEqual(set(calls["cblas_dgemm"]), {"kopsd", "small", "invalid or empty"}, calls)

    def test_one_process(self):
        self.solve(lambda *command: self.run_program(*command, LD_PRELOAD=case.LIBRARY, KOPS_BLAS_THRESHOLD="32"), 600, 1)

    @unittest.skipUnless(LONG, "a minute")
    def test_ranks(self):
        self.solve(lambda *command: self.run_ranks(*command, KOPS_BLAS_THRESHOLD="32"), 2000, 2)


if __name__ == "__main__":
    unittest.main()
