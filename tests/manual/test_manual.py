"""Manual pages: one for every verb, benchmark, call and setting, without warnings. Completions: what bash, zsh and fish
offer, asked of the shells themselves."""
import glob
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness  # noqa: E402

MANUAL = os.environ.get("KOPS_TEST_MANUAL", "")
HEADER = os.environ.get("KOPS_TEST_HEADER", "")
PRIORITIES = {"normal", "high", "low"}


def commands_of(program):
    text = subprocess.run([program, "-h"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z_]+) ", text.split("\n\n")[1], re.M)


def options_of(program, command):
    text = subprocess.run([program, "help", command], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-\w(?:, )?|    )(--[a-z_-]+)", text.split("\nOptions:\n")[1], re.M))


def page(section, name):
    with open(os.path.join(MANUAL, f"man{section}", f"{name}.{section}"), encoding="utf-8") as f:
        return f.read().replace("\\", "")


@unittest.skipUnless(os.path.isdir(os.path.join(MANUAL, "man1")), "no scdoc was here for the build")
class Pages(unittest.TestCase):
    def test_every_command_has_a_page_with_its_options(self):
        for program in (harness.KOPS_CLIENT, harness.KOPS_BENCH):
            name, commands = os.path.basename(program), commands_of(program)
            self.assertGreater(len(commands), 7)
            for command in commands:
                with self.subTest(program=name, command=command):
                    self.assertIn(command, page(1, name))
                    text = page(1, f"{name}-{command}")
                    for option in options_of(program, command):
                        self.assertIn(option, text)
                    self.assertIn(f"{name} {command}", text.split("EXAMPLES")[1])

    def test_every_call_has_a_page_with_its_declaration(self):
        with open(HEADER, encoding="utf-8") as f:
            header = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        calls = set(re.findall(r"^(?!typedef)[a-z][\w *]*?\b(kops_\w+)\(", header, re.M))
        self.assertGreater(len(calls), 40)
        for call in calls:
            with self.subTest(call):
                text = page(3, call)
                alias = re.match(r"\.so man3/(\w+)\.3", text)
                self.assertIn(f"{call}(", page(3, alias[1]) if alias else text)
                self.assertIn(call, page(3, "kops"))

    def test_the_page_of_the_library_has_all_that_its_header_begins_with(self):
        with open(HEADER, encoding="utf-8") as f:
            head = f.read().split("#ifndef KOPS_H")[0]
        topics = re.findall(r"^ \* ([A-Z][\w ]*|fork\(\)): ", head, re.M)
        self.assertGreater(len(topics), 7)
        text = page(3, "kops")
        for words in [f"{topic}:" for topic in topics] + ["reduce ", "#include <stdio"]:
            self.assertIn(words, text)

    def test_every_page_says_what_it_is_about(self):
        """apropos and whatis read that line: words after the name."""
        pages = glob.glob(os.path.join(MANUAL, "man[1-8]", "*.[1-8]"))
        self.assertGreater(len(pages), 60)
        for path in pages:
            with open(path, encoding="utf-8") as f:
                text = f.read().replace("\\&", "").replace("\\", "")
            if not text.startswith(".so "):
                name = re.search(r'^\.SH NAME\n(?:\.P\w*\n)*(.*)$', text, re.M)[1]
                self.assertRegex(name, r"^[\w.-]+(, [\w.-]+)* - \S.{4}", path)

    def test_every_setting_is_in_its_page(self):
        shown = subprocess.run([harness.KOPSD, "--config", os.devnull, "--check-config"], capture_output=True, text=True,
                               check=True).stdout
        settings = re.findall(r"^([a-z-]+) = ", shown, re.M)
        text = page(5, "kopsd.conf")
        self.assertGreater(len(settings), 20)
        for setting in settings:
            self.assertIn(setting, text)
        self.assertNotIn("@settings@", text)

    def test_no_warnings(self):
        if not shutil.which("man"):
            self.skipTest("no man here")
        pages = glob.glob(os.path.join(MANUAL, "man[1-8]", "*.[1-8]"))
        self.assertGreater(len(pages), 60)
        r = subprocess.run(["man", "--warnings", "-l", *pages], capture_output=True, text=True, check=False, cwd=MANUAL,
                           env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MANWIDTH": "80"})
        self.assertEqual((r.returncode, r.stderr), (0, ""))


class Completion(harness.DaemonTest):
    """The offered words, as a set."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = os.path.join(cls.daemon.folder, "files")
        os.mkdir(cls.folder)
        for name in ("left.npy", "right.npy"):
            open(os.path.join(cls.folder, name), "w", encoding="ascii").close()

    def environment(self):
        path = os.path.dirname(harness.KOPS_CLIENT) + ":" + os.environ["PATH"]
        return {**harness.client_env(self.daemon.socket), "PATH": path, "TERM": "dumb", "HOME": self.folder}

    def completions(self, name):
        return os.path.join(MANUAL, "completions", name)

    def check(self, offered):
        """offered(line): what the shell offers behind it."""
        verbs = set(commands_of(harness.KOPS_CLIENT))
        self.assertEqual(offered("kops-client "), verbs | {"help"})
        self.assertEqual(offered("kops-client so"), {"softmax"})
        self.assertEqual(offered("kops-client help st"), {"stats"})
        self.assertEqual(offered("kops-client reduce --kind "), {"sum", "max", "mean", "min", "prod"})
        self.assertEqual(offered("kops-client gemm --dtype b"), {"bf16"})
        self.assertEqual(offered("kops-client run --priority "), PRIORITIES)
        self.assertEqual(offered("kops-client sgemm --tran"), {"--trans-a", "--trans-b"})
        self.assertEqual(offered("kops-client sgemm le"), {"left.npy"})
        self.assertEqual(offered("kops-client sgemm left.npy ri"), {"right.npy"})
        self.assertEqual(offered("kops-client softmax left.npy -o r"), {"right.npy"})
        self.assertEqual(offered("kops-client softmax --device "), {"cpu"})
        for command, kernels in (("gemm", {"openblas", "reference"}), ("sgemm", {"openblas", "reference"}),
                                 ("softmax", {"vectorised", "reference"})):
            self.assertEqual(offered(f"kops-client {command} --kernel "), kernels)
        self.assertEqual(offered("kops-bench transpose --kernel v"), {"vectorised"})
        self.assertEqual(offered("kops-client ping le"), set())
        self.assertEqual(offered("kopsd --max-jobs"), {"--max-jobs", "--max-jobs-per-uid"})
        self.assertEqual(offered("kopsd --devices a"), {"auto"})
        self.assertEqual(offered("kopsd --config le"), {"left.npy"})
        self.assertEqual(offered("kopsd --config left.npy --check"), {"--check-config"})
        self.assertEqual(offered("kops-exporter --li"), {"--listen"})
        self.assertEqual(offered("kops-exporter --socket ri"), {"right.npy"})
        self.assertEqual(offered("kops-client tune so"), {"softmax"})
        self.assertEqual(offered("kops-bench ip"), {"ipc"})

    def test_bash(self):
        def offered(line):
            words = line.split(" ")
            function = words[0].replace("-", "_")
            script = (f"source {self.completions(words[0] + '.bash')}; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}')\n"
                      f"COMP_CWORD={len(words) - 1}; _{function}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
            r = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, cwd=self.folder,
                               env=self.environment(), timeout=600)
            self.assertEqual(r.stderr, "")
            return set(r.stdout.split())

        self.check(offered)
        for command in commands_of(harness.KOPS_CLIENT):
            self.assertEqual({word for word in offered(f"kops-client {command} -") if word.startswith("--")},
                             options_of(harness.KOPS_CLIENT, command))
        self.assertEqual(offered("kops-client run --priority = h"), {"high"})  # as bash splits --priority=h
        self.assertEqual(offered("kops-client --socket /run/other.sock so"), {"softmax"})

    @unittest.skipUnless(shutil.which("fish"), "no fish here")
    def test_fish(self):
        def offered(line):
            script = f"source {self.completions(line.split(' ')[0] + '.fish')}; complete -C '{line}'"
            r = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True,
                               cwd=self.folder, env=self.environment(), timeout=600)
            return {word.split("\t")[0] for word in r.stdout.splitlines()}

        self.check(offered)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh(self):
        shell = Zsh(self.environment(), self.folder, os.path.join(MANUAL, "completions"))
        self.addCleanup(shell.close)
        self.check(shell.offered)


class Zsh:
    """zsh on a terminal. It lists choices between two prompts: some in a line, or each with -- and what it means."""

    def __init__(self, env, folder, completions):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], env)
        # The quotes keep the terminal's echo of this line from being taken for what it prints.
        self.ask(f"fpath=({completions} $fpath); autoload -U compinit; compinit -u -D; LISTMAX=9999; "
                 "unsetopt promptsp listtypes; stty cols 400 -echo; PS1='rea''dy> '\r", b"ready> ")

    def ask(self, keys, until):
        os.write(self.fd, keys.encode())
        text, end = b"", time.monotonic() + 60
        while not re.search(until, text):
            if time.monotonic() > end or not select.select([self.fd], [], [], 60)[0]:
                raise AssertionError(f"zsh does not answer {keys!r}: {text!r}")
            text += os.read(self.fd, 65536)
        return text.decode(errors="replace")

    def offered(self, line):
        # ^D lists; what follows makes more than one choice of one, which would be completed; ^U clears the line.
        text = self.ask(f"{line}\x04\x15print do''ne\r", rb"done\r\n\r*ready> ")
        choices = re.findall(r"^[^\r\n]*", text.split("ready> ")[0], re.M)[1:] if text.count("ready> ") > 1 else []
        words = set()
        for choice in choices:
            words |= {choice.split(" -- ")[0].strip()} if " -- " in choice else set(choice.split())
        return words

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


if __name__ == "__main__":
    if not MANUAL:
        print("skipped: KOPS_TEST_MANUAL is not set")
        raise SystemExit(77)
    harness.main()
