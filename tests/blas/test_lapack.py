"""LAPACK's own testers of eigenvalues, with Netlib's LAPACK and every product by kopsd.

They compare runs with and without vectors for equality, so an element must have the same bits in products of all
shapes.
"""
import glob
import os
import re
import subprocess
import unittest

import case
from support.harness import LONG

[TESTER] = glob.glob("/usr/lib/*/lapack/xeigtstd")[:1] or [""]
FOLDER = os.path.dirname(TESTER)
# Netlib's, where the system's liblapack.so.3 is another one.
NETLIB = [FOLDER, os.path.join(os.path.dirname(FOLDER), "blas")]


@unittest.skipUnless(FOLDER and all(os.path.exists(os.path.join(f, name)) for f, name in
                                    zip(NETLIB, ("liblapack.so.3", "libblas.so.3"))), "no liblapack-test")
class Eigenvalues(case.BlasTest):
    def run_tester(self, tester, name, **settings):
        """How many of its tests failed, and its calls."""
        with open(os.path.join(FOLDER, name), "rb") as f:
            done = subprocess.run([os.path.join(FOLDER, tester)], stdin=f, capture_output=True, timeout=1500, env=
                                  self.environment(LD_LIBRARY_PATH=":".join(NETLIB), **settings))
        out = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, out[-4000:])
        self.assertIn("End of tests", out)
        return re.findall(r"\d+ out of +\d+ tests failed.*|.*\bfailed to pass.*", out), case.report(done.stderr.decode())

    def check(self, tester, name):
        alone, _ = self.run_tester(tester, name)
        found, calls = self.run_tester(tester, name, LD_PRELOAD=case.LIBRARY)
        self.assertEqual(found, alone)
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 100, calls)

    def test_generalised_problems(self):
        self.check("xeigtstd", "dgd.in")

    @unittest.skipUnless(LONG, "five times as long")
    def test_the_others(self):
        for tester, name in (("xeigtstd", "ded.in"), ("xeigtsts", "sed.in"), ("xeigtsts", "sgd.in")):
            with self.subTest(name):
                self.check(tester, name)


if __name__ == "__main__":
    unittest.main()
