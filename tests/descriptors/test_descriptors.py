"""Descriptors that clients send, and whose close never ends: kopsd, its successor and other users do not notice.

With a real file system of a user's own (FUSE), where this machine allows one; and simulated, everywhere.
"""
import os
import signal
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.harness import Daemon, DaemonTest, descendants, eventually  # noqa: E402

import never_closing  # noqa: E402

HANGING_CLOSE = os.environ.get("KOPS_TEST_HANGING_CLOSE", "")
NOT_A_MEMFD = "the descriptor is not a memfd (Invalid argument); make one with memfd_create()"
UIDS = range(62001, 62021)


def has_ended(pid):
    """Whether nobody waited for it or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def refusal(c, fd):
    """The sentence that answers an Import of it."""
    try:
        c.import_fd(fd, 4096)
    except wire.Refused as e:
        return e.message
    return "accepted"


def send_once(path):
    return lambda fd: refusal(wire.Client(path), fd)


class Served(unittest.TestCase):
    def start(self, **options):
        d = Daemon(see_others=1)
        self.addCleanup(d.remove)
        d.start(**options)
        os.chmod(d.socket, 0o666)
        return d

    def assert_served(self, path):
        """Somebody who has never been here."""
        with wire.Client(path) as c:
            c.drop(c.import_new(4096))
            c.ping()

    def assert_session_ends(self, path, control):
        before = control.stats()["sessions"]
        with wire.Client(path) as c:
            self.assertEqual(control.stats()["sessions"], before + 1)
            c.ping()
        self.assertTrue(eventually(lambda: control.stats()["sessions"] == before))


class Fuse(Served):
    def setUp(self):
        try:
            self.mount = never_closing.Mount()
        except OSError as e:
            self.skipTest(f"no file system of our own here: {e}")
        self.addCleanup(self.mount.close)

    def start(self, **options):
        d = super().start(**options)
        self.addCleanup(self.mount.release)  # before the daemon is waited for
        return d

    def test_its_sender_is_answered_and_then_refused(self):
        d = self.start()

        def send(fd):
            c = wire.Client(d.socket)
            answers = [refusal(c, fd), refusal(c, fd), refusal(wire.Client(d.socket), wire.memfd(4096))]
            c.ping()
            return answers

        answers = self.mount.hold(send, None if os.getuid() else UIDS[0])
        self.assertEqual(answers[0], NOT_A_MEMFD)
        for other in answers[1:]:
            self.assertIn("kopsd refuses descriptors from you until the close() of one that you sent returns", other)
        self.assertRegex(d.log().decode(), r"close\(\) of a descriptor from uid \d+ hangs")
        self.assertEqual(d.stop(), 0)

    def test_its_sender_is_served_when_it_has_closed(self):
        d = self.start()
        self.assertEqual(self.mount.hold(send_once(d.socket)), NOT_A_MEMFD)
        with wire.Client(d.socket) as c:
            self.assertIn("kopsd refuses descriptors from you", refusal(c, wire.memfd(4096)))
            self.mount.release()
            self.assertTrue(eventually(lambda: refusal(c, wire.memfd(4096)) == "accepted"))
            self.assertTrue(eventually(lambda: len(descendants(d.pid)) == 2), "processes stay")
        self.assertEqual(d.stop(), 0)

    def test_a_killed_daemon_is_gone_and_its_successor_serves(self):
        d = self.start()
        self.assertEqual(self.mount.hold(send_once(d.socket)), NOT_A_MEMFD)
        client = wire.Client(d.socket)
        self.addCleanup(client.close)
        helpers = descendants(d.pid)
        d.kill_and_start()  # a process with a thread that cannot be killed is never waited for
        with self.assertRaises(wire.Ended):
            client.ping()
        os.chmod(d.socket, 0o666)
        self.assert_served(d.socket)
        self.assertEqual(d.stop(), 0)
        self.assertEqual(len(helpers), 2)
        self.mount.release()
        self.assertTrue(eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in helpers)))

    @unittest.skipIf(harness.QUICK, "Python cannot load a library with sanitizers")
    @unittest.skipIf(os.getuid(), "other uids need root")
    def test_a_job_is_done_by_the_successor(self):
        try:
            from support.libkops import Handle, load_library
        except ImportError as e:
            self.skipTest(str(e))
        d = self.start()
        handle = Handle(load_library(), d.socket)
        self.addCleanup(handle.close)
        job = handle.job(1 << 16)
        handle.matrix(0)[:] = 3
        self.assertEqual(self.mount.hold(send_once(d.socket), UIDS[0]), NOT_A_MEMFD)
        d.signal(signal.SIGSTOP)  # so that the job is in flight when it dies
        statuses = []
        thread = threading.Thread(target=lambda: statuses.append(handle.run(job)))
        thread.start()
        d.kill_and_start()
        thread.join()
        self.assertEqual(statuses, [0], handle.error())
        self.assertEqual(handle.matrix(1).min(), 3)
        handle.close()
        self.assertEqual(d.stop(), 0)

    @unittest.skipIf(os.getuid(), "other uids need root")
    def test_as_many_hang_as_may(self):
        """Then only those are believed whose memory was accepted before."""
        d = self.start(wrapper=["/bin/sh", "-c", 'ulimit -n 256 && exec "$0" "$@"'])
        most = 256 // 64
        with wire.Client(d.socket) as known:
            known.drop(known.import_new(4096))
            for uid in UIDS[:most]:
                self.assertEqual(self.mount.hold(send_once(d.socket), uid), NOT_A_MEMFD)

            def send(fd):
                c = wire.Client(d.socket)
                c.drop(c.lend(4096))  # which needs no descriptor from it
                return refusal(c, fd), refusal(c, wire.memfd(4096))
            new = self.mount.hold(send, UIDS[most])
            self.assertEqual(["from new users" in sentence for sentence in new], [True, True], new)
            known.drop(known.import_new(4096))
            self.mount.release()
            self.assertTrue(eventually(lambda: len(descendants(d.pid)) == 2), "processes stay")
        self.assertEqual(d.stop(), 0)

    @unittest.skipIf(os.getuid(), "other uids need root")
    def test_known_users_hang_as_many_again(self):
        d = self.start(wrapper=["/bin/sh", "-c", 'ulimit -n 256 && exec "$0" "$@"'])
        most = 2 * (256 // 64)

        def send_a_memfd(_):
            with wire.Client(d.socket) as c:
                return refusal(c, wire.memfd(4096))
        for uid in UIDS[:most + 1]:
            self.assertEqual(self.mount.hold(send_a_memfd, uid), "accepted")
        for uid in UIDS[:most]:
            self.assertEqual(self.mount.hold(send_once(d.socket), uid), NOT_A_MEMFD)
        self.assertIn("until fewer close() calls hang", self.mount.hold(send_once(d.socket), UIDS[most]))
        self.assertLessEqual(len(descendants(d.pid)), 1 + most + 4)
        self.mount.release()
        self.assertTrue(eventually(lambda: len(descendants(d.pid)) == 2), "processes stay")
        self.assertEqual(d.stop(), 0)

    def test_a_stopped_daemon_is_gone(self):
        d = self.start()
        self.assertEqual(self.mount.hold(send_once(d.socket)), NOT_A_MEMFD)
        self.assertEqual(d.stop(), 0)

    def test_descriptors_that_nobody_receives(self):
        """Unread in a connection, and at the listening socket: the kernel lets go of them without flush."""
        d = self.start()

        def send(fd):
            c = wire.Client(d.socket)
            for _ in range(20):
                c.start("import", {"buffer": 1, "bytes": 4096}, [fd])
            d.signal(signal.SIGSTOP)
            for _ in range(20):
                late = wire.Client(d.socket, hello=False)
                late.start("import", {"buffer": 1, "bytes": 4096}, [fd])
                late.close()
            c.close()
            d.signal(signal.SIGCONT)

        self.mount.hold(send)
        with wire.Client(d.socket) as c:
            c.ping()
        d.kill_and_start()
        self.assertEqual(d.stop(), 0)

    @unittest.skipIf(os.getuid(), "other uids need root")
    def test_twenty_users_hang_one_each(self):
        d = self.start()
        control = wire.Client(d.socket)
        self.addCleanup(control.close)
        for handle in [self.mount.start(send_once(d.socket), uid) for uid in UIDS]:
            self.assertEqual(self.mount.result(handle), NOT_A_MEMFD)
        self.assertTrue(eventually(lambda: d.log().count(b"close() of a descriptor") >= 10))  # lines of one second
        for _ in range(30):
            self.assert_served(d.socket)
            self.assert_session_ends(d.socket, control)
        self.assertLess(len(descendants(d.pid)), len(UIDS) + 5)
        self.assertEqual(d.stop(), 0)


class Order(DaemonTest):
    """What is received elsewhere changes nothing of a session's order, nor for other sessions."""

    def test_requests_behind_an_import_wait_for_it(self):
        c = self.client()
        fd = wire.memfd(4096)
        ids = []
        for buffer in range(1, 100):
            ids += [c.start("import", {"buffer": buffer, "bytes": 4096}, [fd]), c.start("cancel", {"job": 0})]
            c.start("drop", {"buffer": buffer})  # answered when the memory is unmapped
        os.close(fd)
        for id in ids:
            c.wait_any(id)
        self.assertEqual([id for id in c.order if id in ids], ids)

    def test_every_kind_of_descriptor_keeps_its_sentence(self):
        c = self.client()
        read_end, write_end = os.pipe()
        self.assertEqual(refusal(c, read_end), NOT_A_MEMFD)
        os.close(read_end)
        os.close(write_end)
        with open(__file__, "rb") as f:
            self.assertEqual(refusal(c, f.fileno()), NOT_A_MEMFD)
        path = os.open("/", os.O_PATH)
        self.assertEqual(refusal(c, path), "the descriptor is not a memfd (Bad file descriptor); make one with memfd_create()")
        os.close(path)
        fd = wire.memfd(4096, seals=0)
        self.assertIn("the memfd lacks F_SEAL_SHRINK F_SEAL_GROW F_SEAL_SEAL", refusal(c, fd))
        os.close(fd)
        fd = wire.memfd(100)
        self.assertEqual(refusal(c, fd), "the memfd has 100 bytes, expected at least 4096")
        os.close(fd)

    def test_a_client_that_leaves_at_once(self):
        fd = wire.memfd(4096)
        for _ in range(harness.count(200, 50)):
            c = wire.Client(self.daemon.socket)
            c.start("import", {"buffer": 1, "bytes": 4096}, [fd])
            c.close()
        os.close(fd)
        self.control.ping()

    def test_many_at_once(self):
        def work():
            with wire.Client(self.daemon.socket) as c:
                for _ in range(20):
                    c.drop(c.import_new(4096))

        threads = [threading.Thread(target=work) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(descendants(self.daemon.pid)), 2, "receivers stay")

    def test_receivers_that_are_killed(self):
        """By whom it may be, for want of memory: others are started."""
        for end_of in (lambda all: all[-1:], lambda all: all):  # of a receiver; of the spawner, with which all end
            ended = end_of(descendants(self.daemon.pid))
            os.kill(ended[0], signal.SIGKILL)
            self.assertTrue(eventually(lambda: all(map(has_ended, ended))))

            def served():
                try:
                    with wire.Client(self.daemon.socket) as c:
                        c.drop(c.import_new(4096))
                    return True
                except wire.Ended:
                    return False
            self.assertTrue(eventually(served))


@unittest.skipUnless(HANGING_CLOSE, "a sanitizer's library has to be loaded first")
class Simulated(Served):
    """A close that hangs by a library which is loaded into kopsd."""

    def start_hanging(self):
        self.file = tempfile.NamedTemporaryFile(prefix="never-closing")
        self.addCleanup(self.file.close)
        self.flag = tempfile.mkstemp()[1]
        self.addCleanup(lambda: os.path.exists(self.flag) and os.unlink(self.flag))
        return self.start(LD_PRELOAD=HANGING_CLOSE, KOPS_TEST_HANG=self.flag)

    def test_only_its_sender_is_refused(self):
        d = self.start_hanging()
        with wire.Client(d.socket) as c, wire.Client(d.socket) as other:
            c.drop(c.import_new(4096))
            self.assertEqual(refusal(c, self.file.fileno()), NOT_A_MEMFD)
            for client in (c, other):  # of the same user
                self.assertIn("kopsd refuses descriptors from you", refusal(client, wire.memfd(4096)))
            c.lend(4096)
            os.unlink(self.flag)
            self.assertTrue(eventually(lambda: refusal(c, wire.memfd(4096)) == "accepted"))
        self.assertTrue(eventually(lambda: len(descendants(d.pid)) == 2), "receivers stay")
        self.assertEqual(d.stop(), 0)

    @unittest.skipIf(os.getuid(), "other uids need root")
    def test_others_are_served(self):
        d = self.start_hanging()
        with wire.Client(d.socket) as c:
            self.assertEqual(refusal(c, self.file.fileno()), NOT_A_MEMFD)

        def as_other():
            os.setresuid(UIDS[0], UIDS[0], UIDS[0])
            with wire.Client(d.socket) as mine:
                return refusal(mine, wire.memfd(4096))
        pid = os.fork()
        if pid == 0:
            os._exit(as_other() != "accepted")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        d.process.kill()
        d.wait()


if __name__ == "__main__":
    sys.exit(harness.main())
