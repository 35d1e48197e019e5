"""README.md's blocks do what they say. Those of shell commands run, in order, in one folder; that in C is compiled. The
block in Python is run by tests/python/test_docs.py. The program in kops.h is compiled and run."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BLAS = os.environ.get("KOPS_TEST_BLAS", "")
LIBKOPS = os.environ.get("KOPS_TEST_LIBKOPS", "")
TOP = os.path.join(os.path.dirname(harness.KOPS_CLIENT), "kops-top")
# Lines that change the host, or do for minutes what other tests do. Any other has to run.
INSTALLS = re.compile(r"^(sudo |scripts/run-tests)")
PROGRAM = """import sys
try:
    import numpy
except ModuleNotFoundError:
    sys.exit(77)
a = numpy.ones((64, 64))
assert (a @ a == 64).all()
"""
C_BEFORE = """#include <err.h>
#include <kops.h>
int readme(uint64_t m, uint64_t n, uint64_t depth);
int readme(uint64_t m, uint64_t n, uint64_t depth)
{
"""
C_AFTER = """
return 0;
}
"""


def blocks():
    """(language, text) of each."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        return re.findall(r"^```(\w*)\n(.*?)^```$", f.read(), re.M | re.S)


class Readme(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="kops-readme-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(os.path.realpath(os.path.join(SOURCE, "examples")), os.path.join(self.folder, "examples"))
        with open(os.path.join(self.folder, "program.py"), "w", encoding="ascii") as f:
            f.write(PROGRAM)

    def shell(self, line):
        env = harness.client_env(self.daemon.socket)
        env["PATH"] = os.path.dirname(harness.KOPS_CLIENT) + ":" + env["PATH"]
        env["LD_LIBRARY_PATH"] = os.path.dirname(BLAS)
        return subprocess.run(["sh", "-ec", line], cwd=self.folder, env=env, capture_output=True, text=True, timeout=200,
                              stdin=subprocess.DEVNULL)

    def test_blocks_of_the_shell(self):
        ran = 0
        for language, text in blocks():
            if language != "sh":
                continue
            lines = text.splitlines()
            installs = [bool(INSTALLS.match(line)) for line in lines]
            if any(installs):
                continue  # what follows such a line needs what it installed
            for line in lines:
                if ("LD_PRELOAD" in line and not BLAS) or ("kops-client top" in line and not os.access(TOP, os.X_OK)):
                    continue
                with self.subTest(line):
                    r = self.shell(line)
                    self.assertIn(r.returncode, (0, 77) if "program.py" in line else (0,), r.stderr)
                    ran += 1
        self.assertGreater(ran, 8)
        made = set(os.listdir(self.folder))
        self.assertGreaterEqual(made, {"a.bin", "b.bin", "c.bin", "y.npy"})

    def test_files_that_are_used_are_made_before(self):
        """Nothing is read that no line above has written, and that is not in the repository."""
        there = {"program.py"}
        for language, text in blocks():
            for word in shlex.split(text, comments=True) if language == "sh" else ():
                if re.fullmatch(r"[\w$/-]+\.(bin|npy|job|py)", word):
                    known = word in there or os.path.exists(os.path.join(SOURCE, word))
                    there.add(word)
                    self.assertTrue(known or f"-o {word}" in text, word)

    def test_every_block_is_of_a_kind_that_is_tried(self):
        kinds = [language for language, _ in blocks()]
        self.assertEqual(set(kinds), {"", "sh", "python", "c"})
        self.assertEqual(kinds.count(""), 1)  # the drawing
        self.assertIn("one loop, one", blocks()[0][1])

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_block_in_c(self):
        (text,) = [text for language, text in blocks() if language == "c"]
        r = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-",
                            *(f"-I{os.path.join(SOURCE, folder)}" for folder in ("client", "proto"))],
                           input=C_BEFORE + text + C_AFTER, text=True, capture_output=True, check=False)
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("cc") and LIBKOPS, "there is no compiler, or libkops has a sanitizer")
    def test_program_in_kops_h(self):
        with open(os.path.join(SOURCE, "client", "kops.h"), encoding="utf-8") as f:
            program = re.search(r"^ \*     #include <kops\.h>\n.*?^ \*     }\n \*\n \* \S", f.read(), re.M | re.S)[0]
        text = "".join(line[7:] + "\n" for line in program.splitlines()[:-1])
        built = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-x", "none", LIBKOPS, "-o",
                                "program", *(f"-I{os.path.abspath(os.path.join(SOURCE, folder))}" for folder in ("client", "proto"))],
                               cwd=self.folder, input=text, text=True, capture_output=True, check=False)
        self.assertEqual((built.returncode, built.stderr), (0, ""))
        env = harness.client_env(self.daemon.socket)
        env["LD_LIBRARY_PATH"] = os.path.dirname(LIBKOPS)
        ran = subprocess.run(["./program"], cwd=self.folder, env=env, text=True, capture_output=True, timeout=200, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"^0\.015625, in [\d.e+]+ us on cpu\n$")  # 1/64


if __name__ == "__main__":
    if not harness.KOPS_CLIENT:
        print("skipped: kops-client is not built")
        sys.exit(77)
    harness.main()
