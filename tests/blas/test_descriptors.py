"""A program that closes the BLAS library's descriptors, and one that was started without standard ones."""
import os
import unittest

import case

PROGRAM = os.environ.get("KOPS_TEST_DESCRIPTORS", "")
PRODUCTS = 1 + 1 + 4 * 2  # of the process itself


class Descriptors(case.BlasTest):
    def check(self, *command):
        """Right, and all by kopsd: what it reported when it could."""
        out, calls = self.run_program(*command, LD_PRELOAD=case.LIBRARY)
        self.assertIn("right", out)
        return calls

    def test_closefrom_and_fork(self):
        calls = self.check(PROGRAM)
        self.assertGreaterEqual(calls["cblas_dgemm"]["kopsd"], PRODUCTS, calls)

    def test_without_standard_input(self):
        self.check("sh", "-c", f"exec {PROGRAM} <&-")


if __name__ == "__main__":
    unittest.main()
