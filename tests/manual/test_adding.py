"""docs/adding.md's walk does what it says. Its blocks are followed in a copy of the repository: the name of a file in the
line before a block says where the block goes, a new file or lines at the end of one that is there. All others run, in
order, in one shell. What that touches beside the op's folder is as much as the page says."""
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = "docs/adding.md"
FOLDER = "kernels/clip/"
LEFT_OUT = (".git", "__pycache__", ".mypy_cache")
PATIENCE_S = 1500
TEXT_MAX = 6000
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
COUNTS = re.compile(r"(\d+) files in its folder and (\d+) line in (\d+) other file; `scripts/gen-ops` wrote (\d+) files")


def walk():
    """The section about ops."""
    with open(os.path.join(SOURCE, PAGE), encoding="utf-8") as f:
        return re.search(r"^## An op$.*?(?=^## )", f.read(), re.M | re.S)[0]


def file_of(block):
    """Where the block goes; None: it is to be run."""
    named = re.match(r"^`([^`]+)`", block["before"])
    return named and named[1]


def here(name, text):
    return f"{name} <<'END OF BLOCK'\n{text}END OF BLOCK\n"


def script(blocks):
    parts = ["set -euxo pipefail\n"]
    for block in blocks:
        path, text = file_of(block), block["text"]
        if path:
            parts.append(f"mkdir -p '{os.path.dirname(path)}'\n" + here(f"cat >> '{path}'", text))
        else:
            parts.append({"sh": text, "python": here("python3 -", text)}[block["language"]])
    return "".join(parts)


def files(root):
    """All but what a build or a run makes."""
    for folder, folders, names in os.walk(root):
        folders[:] = [x for x in folders if x not in LEFT_OUT and not (folder == root and x == "build")]
        yield from (os.path.relpath(os.path.join(folder, x), root) for x in names)


class Adding(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kops-adding-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.copy = os.path.join(self.folder, "kops")
        shutil.copytree(SOURCE, self.copy, symlinks=True,
                        ignore=lambda folder, names: {x for x in names if x in LEFT_OUT or (folder == SOURCE and x == "build")})

    def environment(self):
        """python3 is the one with NumPy that runs this test."""
        bin_folder = os.path.join(self.folder, "bin")
        os.mkdir(bin_folder)
        os.symlink(sys.executable, os.path.join(bin_folder, "python3"))
        env = {**os.environ, "PATH": bin_folder + ":" + os.environ["PATH"]}
        if shutil.which("ccache"):
            env.update(CMAKE_C_COMPILER_LAUNCHER="ccache", CMAKE_CXX_COMPILER_LAUNCHER="ccache", CCACHE_BASEDIR=self.copy,
                       CCACHE_NOHASHDIR="1")
        return env

    def follow(self, blocks):
        log_path = os.path.join(self.folder, "log")
        with open(log_path, "w", encoding="utf-8") as log:
            shell = subprocess.Popen(["bash", "-c", script(blocks)], cwd=self.copy, env=self.environment(), stdout=log,
                                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
            try:
                status = shell.wait(PATIENCE_S)
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)  # with a daemon that the page has not ended
                except ProcessLookupError:
                    pass
                shell.wait()
        with open(log_path, encoding="utf-8", errors="replace") as log:
            self.assertEqual(status, 0, f"{PAGE} cannot be followed:\n{log.read()[-TEXT_MAX:]}")

    def changed(self):
        """Files that are new or other than before."""
        return {x for x in files(self.copy)
                if not os.path.exists(os.path.join(SOURCE, x))
                or not filecmp.cmp(os.path.join(SOURCE, x), os.path.join(self.copy, x), shallow=False)}

    def test_the_walk(self):
        text = walk()
        blocks = list(BLOCK.finditer(text))
        by_hand = {file_of(x) for x in blocks if file_of(x)}
        lines = sum(x["text"].count("\n") for x in blocks if file_of(x) and not file_of(x).startswith(FOLDER))
        in_folder = {x for x in by_hand if x.startswith(FOLDER)}
        self.assertGreater(len(in_folder), 0, "no block of the page goes to a file in the op's folder")
        self.follow(blocks)
        changed = self.changed()
        self.assertEqual({x for x in changed if x.startswith(FOLDER)}, in_folder)
        self.assertLessEqual(by_hand, changed)
        counts = COUNTS.search(text)
        self.assertTrue(counts, "the page has no sentence like: " + COUNTS.pattern)
        made = changed - by_hand
        self.assertEqual([int(x) for x in counts.groups()],
                         [len(in_folder), lines, len(by_hand - in_folder), len(made)], f"made: {sorted(made)}")


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        sys.exit(77)
    unittest.main()
