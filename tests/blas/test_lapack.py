"""LAPACK's own testers, with Netlib's LAPACK, and every product and system of equations by kopsd.

Those of eigenvalues compare runs with and without vectors for equality, so an element must have the same bits in products of
all shapes.
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
class Tester(case.BlasTest):
    def run_tester(self, tester, text, **settings):
        """How many of its tests failed, and its calls."""
        done = subprocess.run([os.path.join(FOLDER, tester)], input=text, capture_output=True, timeout=1500, env=
                              self.environment(LD_LIBRARY_PATH=":".join(NETLIB), **settings))
        out = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, out[-4000:])
        self.assertIn("End of tests", out)
        return re.findall(r"\d+ out of +\d+ tests failed.*|.*\bfailed to pass.*", out), case.report(done.stderr.decode())

    def check(self, tester, text):
        """The calls of the tester, which finds the same as ever."""
        alone, _ = self.run_tester(tester, text)
        found, calls = self.run_tester(tester, text, LD_PRELOAD=case.LIBRARY)
        self.assertEqual(found, alone)
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 100, calls)
        return calls


def input_of(name):
    with open(os.path.join(FOLDER, name), "rb") as f:
        return f.read()


class Equations(Tester):
    HEAD = 16  # lines of sizes and switches

    def test_all_types(self):
        for letter in "sdcz":
            with self.subTest(letter):
                lines = input_of(f"{letter}test.in").splitlines(keepends=True)
                kinds = tuple((letter.upper() + kind).encode() for kind in ("GE", "PO", "TR"))
                calls = self.check(f"xlintst{letter}", b"".join(
                    line for i, line in enumerate(lines) if i < self.HEAD or line.startswith(kinds)))
                for name in ("getrf", "getri", "getrs", "potrf", "potri", "potrs", "trtri", "trtrs"):
                    self.assertGreater(calls[f"{letter}{name}_"]["kopsd"], 100, name)


class Eigenvalues(Tester):
    def test_generalised_problems(self):
        self.check("xeigtstd", input_of("dgd.in"))

    @unittest.skipUnless(LONG, "five times as long")
    def test_the_others(self):
        for tester, name in (("xeigtstd", "ded.in"), ("xeigtsts", "sed.in"), ("xeigtsts", "sgd.in")):
            with self.subTest(name):
                self.check(tester, input_of(name))


if __name__ == "__main__":
    unittest.main()
