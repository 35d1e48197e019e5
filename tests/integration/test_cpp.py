"""kops.hpp: programs in C++ against the real daemon."""
import os
import subprocess
import sys
import unittest

from support import harness

PROGRAMS = [p for p in os.environ.get("KOPS_TEST_CPP", "").split(",") if p]


class Cpp(harness.DaemonTest):
    def test_programs(self):
        for program in PROGRAMS:
            with self.subTest(os.path.basename(program)):
                done = subprocess.run([program], env={**os.environ, "KOPS_SOCKET": self.daemon.socket}, text=True,
                                      capture_output=True, timeout=600)
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    if not PROGRAMS:
        print("skipped: there is no compiler for C++")
        sys.exit(77)
    unittest.main()
