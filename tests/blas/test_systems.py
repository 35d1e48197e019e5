"""LAPACK's functions for systems of equations: a program linked with the BLAS library, beside a daemon that lives or dies."""
import os
import unittest

import case
from support import harness

SYSTEMS = os.environ.get("KOPS_TEST_SYSTEMS", "")
NAMES = {f"{letter}{name}_" for letter in "sdcz"
         for name in ("potrf", "potrs", "posv", "potri", "getrf", "getrs", "gesv", "getri", "trtrs", "trtri")}


def of_lapack(calls):
    """OpenBLAS's functions call products, of which other tests know."""
    return {name: c for name, c in calls.items() if name in NAMES}


class Systems(case.BlasTest):
    def test_every_function_is_right(self):
        n = harness.count(200, 20)
        out, calls = self.run_program(SYSTEMS, "calls", str(n))
        self.assertEqual(out, "")
        self.assertEqual(of_lapack(calls), {name: {"kopsd": n} for name in NAMES})

    def test_what_is_unusual_is_as_ever(self):
        out, calls = self.run_program(SYSTEMS, "unusual")
        self.assertNotIn("line ", out)
        self.assertEqual(out.count("had an illegal value"), 4 * 5)
        self.assertEqual(sum(c["kopsd"] for c in of_lapack(calls).values()), 0)
        self.assertEqual({why for c in of_lapack(calls).values() for why in c},
                         {"kopsd", "invalid or empty", "singular or not positive definite"})

    def test_without_a_daemon(self):
        out, calls = self.run_program(SYSTEMS, "calls", "10", KOPS_SOCKET="/nonexistent/kopsd.sock")
        self.assertEqual(out, "")
        self.assertEqual({why for c in calls.values() for why in c}, {"kopsd", "kopsd away", "small"})
        self.assertEqual(sum(c["kopsd"] for c in calls.values()), 0)

    def test_a_daemon_without_a_gpu_is_left_alone(self):
        _, calls = self.run_program(SYSTEMS, "calls", "10", KOPS_BLAS_THRESHOLD="")
        self.assertEqual(sum(c["kopsd"] for c in calls.values()), 0)


class Deaths(case.BlasTest):
    leaks_checked = False

    def test_the_daemon_dies_and_nobody_notices(self):
        self.check_death([SYSTEMS, "loop"], 5)


if __name__ == "__main__":
    unittest.main()
