"""The path of a job: it leads down through daemon/, and no file of it is entered more than three times in one Submit.

The daemon is one that notes each call on the thread of its loop, but for functions of headers. A file is entered where one
of its functions is called from another file, or by libuv; calls in a row by one function, as in a loop, count once.
Prints the files, how often they are entered, and the functions by which they are.
"""
import array
import collections
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402

ENTRIES_MAX = 3
DOWN = ["share/turns.c", "session/turn.c", "session/request.c", "session/verb/submit.c", "session/runs.c", "job/job.c",
        "session/bind.c", "job/plan.c", "dispatch/submit.c", "share/scheduler.c", "dispatch/dispatch.c", "dispatch/admit.c",
        "dispatch/start.c", "device/device.c", "dispatch/back.c", "job/finish.c",
        "session/reply.c"]


class Call:
    def __init__(self, function, file):
        self.function, self.file, self.calls = function, file, []

    def all(self):
        yield self
        for call in self.calls:
            yield from call.all()

    def reaches(self, function):
        return any(call.function == function for call in self.all())


def names_of(addresses):
    """address → (function, file in daemon/)"""
    said = subprocess.run(["addr2line", "-f", "-e", harness.KOPSD], input="\n".join(map(hex, addresses)), text=True,
                          capture_output=True, check=True).stdout.split("\n")
    files = [line.rsplit(":", 1)[0].rpartition("/daemon/")[2] for line in said[1::2]]
    return dict(zip(addresses, zip(said[0::2], files)))


def read_calls(path):
    """What main() called, what that called, and so on."""
    notes = array.array("Q")
    with open(path, "rb") as f:
        notes.frombytes(f.read())
    names = names_of(sorted({note >> 1 for note in notes}))
    stack = [Call("", "")]
    for note in notes:
        if note & 1:
            stack.pop()
        else:
            call = Call(*names[note >> 1])
            stack[-1].calls.append(call)
            stack.append(call)
    return stack[0]


def path_of_submit(calls):
    """The turn in which the last Submit was read, and the return of its run."""
    calls = list(calls.all())
    turn = max(i for i, call in enumerate(calls)
               if (call.function, call.file) == ("take_turn", "share/turns.c") and call.reaches("verb_submit"))
    back = next(call for call in calls[turn:] if call.file == "device/device.c" and call.reaches("reply_receipt"))
    return [calls[turn], back]


def entries(path):
    """file → [functions of each entry], in the order in which files are entered first."""
    entered = collections.defaultdict(list)

    def visit(caller):
        before = None
        for call in caller.calls:
            if call.file == before:
                entered[call.file][-1].append(call.function)
            elif call.file != caller.file:
                entered[call.file].append([call.function])
            before = call.file if call.file != caller.file else None
            visit(call)

    for call in path:
        entered[call.file].append([call.function])
        visit(call)
    return entered


def table(path, entered):
    files = [call.file for part in path for call in part.all()]
    changes = sum(a != b for a, b in zip(files, files[1:]))
    lines = [f"{len(files)} calls, {changes} changes of file"]
    for file, times in entered.items():
        lines.append(f"{file:24}{len(times)}  {', '.join(dict.fromkeys(f for functions in times for f in functions))}")
    return "\n".join(lines)


class Path(unittest.TestCase):
    maxDiff = None

    def note_submits(self):
        """Three of one product. The third finds everything as in a session that has worked for some time."""
        # With one CPU the loop sleeps while a device is at work, so that what it does meanwhile is not noted.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        daemon = harness.Daemon(devices="cpu")
        self.addCleanup(daemon.remove)
        notes = os.path.join(daemon.folder, "calls")
        daemon.start(NOTE_CALLS=notes)
        with daemon.connect() as c:
            n = 64
            op = wire.gemm(*[wire.view(c.import_new(4 * n * n), [n, n]) for _ in range(3)])
            for _ in range(3):
                c.submit(op)
                time.sleep(0.1)
        self.assertEqual(daemon.stop(), 0)
        return read_calls(notes)

    def test_submit(self):
        path = path_of_submit(self.note_submits())
        entered = entries(path)
        found = table(path, entered)
        print(found)
        self.assertEqual([file for file in entered if file in DOWN], DOWN, found)
        often = {file: len(times) for file, times in entered.items() if len(times) > ENTRIES_MAX}
        self.assertEqual(often, {}, found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
