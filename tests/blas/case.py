"""What the tests of the BLAS library share: programs beside a daemon, and the library's report about them."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness  # noqa: E402

LIBRARY = os.environ.get("KOPS_TEST_BLAS", "")


class BlasTest(harness.DaemonTest):
    """A program with every product sent to self.daemon, unless the settings say otherwise."""

    def environment(self, **settings):
        env = {k: v for k, v in os.environ.items() if not k.startswith("KOPS_") or k == "KOPS_TEST_SEED"}
        return {**env, "KOPS_SOCKET": self.daemon.socket, "KOPS_BLAS_THRESHOLD": "0", "KOPS_BLAS_VERBOSE": "1",
                **settings}

    def run_program(self, *command, seconds=1800, **settings):
        """What it printed, and its calls: {routine: {"kopsd" or a reason why not: how many}}."""
        done = subprocess.run(command, env=self.environment(**settings), capture_output=True, text=True,
                              timeout=seconds)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout, report(done.stderr)

    def run_acts(self, command, *signals, **settings):
        """The calls of a program in acts (acts.h). kopsd gets a signal before each of those that follow the first."""
        program = subprocess.Popen(command, env=self.environment(**settings), bufsize=0, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for signal in signals:
            self.assertEqual(program.stdout.read(1), b".")
            self.daemon.process.send_signal(signal)
            program.stdin.write(b".")
        out, err = program.communicate(timeout=600)
        self.assertEqual((program.returncode, out), (0, b""), err)
        return report(err.decode())

    def restart(self):
        """After the daemon's death."""
        os.truncate(self.daemon.log_path, 0)
        self.daemon.start()
        self.control.close()
        type(self).control = self.daemon.connect(name="control")

    def check_death(self, command, rounds):
        """A program that prints a dot after each round of calls, and so many of them before kopsd dies, goes on as ever."""
        program = subprocess.Popen(command, env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.assertEqual(program.stdout.read(rounds), rounds * b".")
        self.daemon.process.kill()
        self.daemon.wait()
        self.assertEqual(program.stdout.read(20), 20 * b".")
        self.restart()
        out, err = program.communicate(timeout=600)
        self.assertEqual((program.returncode, out.strip(b".")), (0, b""), err)
        calls = report(err.decode())
        self.assertGreater(sum(c["kopsd"] for c in calls.values()), 40)
        self.assertGreater(sum(c.get("kopsd away", 0) for c in calls.values()), 10)


def locale_with_comma(test):
    """The settings of one in which 0.5 is 0,5. No system has to have one, so it is made."""
    folder = tempfile.TemporaryDirectory(prefix="kops-test-")
    test.addCleanup(folder.cleanup)
    source = os.path.join(folder.name, "source")
    with open(source, "w", encoding="ascii") as f:
        f.write('LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n')
    subprocess.run(["localedef", "-c", "-i", source, os.path.join(folder.name, "comma")], capture_output=True)
    if not os.path.exists(os.path.join(folder.name, "comma", "LC_NUMERIC")):
        test.skipTest("localedef makes no locale here")
    return {"LOCPATH": folder.name, "LC_ALL": "comma"}


def report(text):
    """The calls of all processes of a program."""
    calls = {}
    for name, kopsd, reasons in re.findall(r"kops-blas\[\d+\]: (\w+): (\d+) calls by kopsd in .* ms \(.*\); \d+ by .* ms"
                                           r"(?:: (.*))?", text):
        counts = calls.setdefault(name, {"kopsd": 0})
        counts["kopsd"] += int(kopsd)
        for number, why in re.findall(r"(\d+) ([^,]+)", reasons):
            counts[why] = counts.get(why, 0) + int(number)
    return calls


def moved(text):
    """KiB that were copied for kopsd, and that it used in place."""
    found = re.findall(r"kops-blas\[\d+\]: .* \((\d+) KiB copied, (\d+) in place\); ", text)
    return sum(int(copied) for copied, _ in found), sum(int(in_place) for _, in_place in found)
