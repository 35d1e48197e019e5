"""The examples of README.md, docs/python.md and docs/scale.md."""
import doctest
import importlib.util
import os
import re
import subprocess
import sys
import unittest

import kops
from case import PythonTest

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
PAGE = os.path.join(DOCS, "python.md")


class Docs(PythonTest):
    leaks_checked = False  # the default client of this process stays

    def test_examples(self):
        os.environ["KOPS_SOCKET"] = self.daemon.socket
        failed, tried = doctest.testfile(PAGE, module_relative=False)
        self.assertEqual(failed, 0)
        self.assertGreater(tried, 20)

    def test_readme(self):
        """As pasted, in an interpreter of its own."""
        os.environ["KOPS_SOCKET"] = self.daemon.socket
        with open(os.path.join(DOCS, "..", "README.md"), encoding="utf-8") as f:
            examples = re.findall(r"^```python\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(examples), 0)
        for example in examples:
            check = "print(numpy.allclose(c.sum(-1), 1, atol=1e-4))"
            done = subprocess.run([sys.executable, "-c", example + check], capture_output=True, text=True, timeout=600)
            self.assertEqual((done.stdout, done.stderr), ("True\n", ""))

    @unittest.skipUnless(importlib.util.find_spec("dask"), "no Dask")
    def test_examples_of_scale(self):
        os.environ["KOPS_SOCKET"] = self.daemon.socket
        failed, tried = doctest.testfile(os.path.join(DOCS, "scale.md"), module_relative=False)
        self.assertEqual(failed, 0)
        self.assertGreater(tried, 5)

    def test_every_function_is_explained(self):
        with open(PAGE, encoding="utf-8") as f:
            text = f.read()
        for name in kops.__all__:
            if name[0].islower():
                self.assertIn(name, text)


if __name__ == "__main__":
    unittest.main()
