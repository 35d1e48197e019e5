"""A program that closes the BLAS library's descriptors, and one that was started without standard ones."""
import os
import unittest

import case

PROGRAM = os.environ.get("KOPS_TEST_DESCRIPTORS", "")
PRODUCTS = 1 + 2 * 2 + 1 + 4 * 2  # in two children, too


class Descriptors(case.BlasTest):
    def check(self, *command, **settings):
        """Right, and all by kopsd."""
        out, calls = self.run_program(*command, LD_PRELOAD=case.LIBRARY, **settings)
        self.assertIn("right", out)
        self.assertEqual(calls["cblas_dgemm"], {"kopsd": PRODUCTS})

    def test_closefrom_and_fork(self):
        self.check(PROGRAM)

    def test_without_standard_input(self):
        self.check("sh", "-c", f"exec {PROGRAM} <&-")

    def test_a_relative_socket(self):
        """It is found after the program has changed its folder, by its children too."""
        self.check("sh", "-c", f"cd {self.daemon.folder} && exec {PROGRAM}", KOPS_SOCKET="kopsd.sock")


if __name__ == "__main__":
    unittest.main()
