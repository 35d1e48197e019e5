"""kopsd in a memory cgroup smaller than what clients ask for: they are refused, with the numbers, and nothing is killed."""
import fcntl
import os
import resource
import sys
import time
import unittest

from support import harness, wire
from support.harness import eventually
from support.wire import RESIDENT, view

PAGE = 4096


def make_cgroup(bytes_max):
    """Path of a new memory cgroup, and None; or None and the reason why there is none."""
    name = f"kops-test-{os.getpid()}"
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(root, name)
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, limit), "w", encoding="ascii") as f:
                f.write(str(bytes_max))
            with open(os.path.join(path, "cgroup.procs"), "a", encoding="ascii"):
                return path, None
        except OSError:
            os.rmdir(path)
    return None, "no memory cgroup can be made here"


@unittest.skipIf(harness.QUICK, "sanitizers take memory of their own")
class Contained(unittest.TestCase):
    settings = {"pool_cache": 0}
    limit = 640 << 20

    def setUp(self):
        self.cgroup, why = make_cgroup(self.limit)
        if not self.cgroup:
            self.skipTest(why)
        self.addCleanup(self.remove_cgroup)
        self.daemon = harness.Daemon(**self.settings)
        self.addCleanup(self.daemon.remove)
        self.daemon.spawn_in(os.path.join(self.cgroup, "cgroup.procs"))
        self.assertTrue(eventually(lambda: b" ready: " in self.daemon.log()), self.daemon.log())
        self.c = self.daemon.connect()
        self.addCleanup(self.c.close)

    def remove_cgroup(self):
        self.assertTrue(eventually(self.try_to_remove, 5), "the cgroup is still in use")

    def try_to_remove(self):
        try:
            os.rmdir(self.cgroup)
            return True
        except OSError:
            return False

    def refused(self, action, *args):
        """For want of memory. How much there is, and where, is for the log."""
        with self.assertRaises(wire.Refused) as caught:
            action(*args)
        self.assertEqual(caught.exception.name, "NOMEM", caught.exception.message)
        if caught.exception.message.startswith("cpu has "):
            return  # a device's memory is everybody's to see
        self.assertIn("the rest is in use or reserved", caught.exception.message)
        for hidden in (str(self.limit), os.path.basename(self.cgroup)):
            self.assertNotIn(hidden, caught.exception.message)
            self.assertIn(hidden.encode(), self.daemon.log())

    def assert_works(self):
        self.assertIsNone(self.daemon.process.poll(), "kopsd was killed")
        with self.daemon.connect() as c:
            b = c.lend(1 << 20)
            c.submit(wire.add(*[view(b, [1 << 18])] * 3))
            c.ping()

    def lend(self, size):
        """A lent buffer and its descriptor."""
        r, b = self.c.start_alloc(size)
        (fd,) = self.c.wait(r)["fds"]
        return b, fd

    def lend_punched(self, size):
        b, fd = self.lend(size)
        wire.punch_hole(fd, 0, size)
        return b, fd

    def one_element_a_page(self, b, size):
        """An op that touches each page of a buffer."""
        n = size // PAGE // 2
        return wire.copy(*(view(b, [n], [PAGE // 4], offset=o) for o in (0, size // 2)))

    def import_sparse(self, size):
        """Imports a memfd without pages; an op that touches each of them, and the memfd."""
        fd = wire.memfd(size)
        return self.one_element_a_page(self.c.import_fd(fd, size), size), fd

    def import_filled(self, size):
        """The same with pages, which are taken from our memory and not from kopsd's."""
        fd = wire.memfd(size)
        os.posix_fallocate(fd, 0, size)
        return self.one_element_a_page(self.c.import_fd(fd, size), size), fd

    def punch_while_they_run(self, jobs, *punched):
        """Names of the answers."""
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            for fd, size in punched:
                wire.punch_hole(fd, 0, size)
            time.sleep(0.01)
        return [wire.STATUS_NAME[self.c.wait_any(job)["status"]] for job in jobs]


class Requests(Contained):
    def test_one_large_alloc(self):
        for kind in (wire.SHARED, RESIDENT):
            self.refused(lambda: self.c.wait(self.c.start_alloc(2 << 30, kind)[0]))
            self.assert_works()

    def test_many_small_allocs(self):
        for kind in (wire.SHARED, RESIDENT):
            answers = [self.c.wait_any(r) for r, _ in [self.c.start_alloc(64 << 20, kind) for _ in range(40)]]
            for answer in answers:
                for fd in answer["fds"]:
                    os.close(fd)
            names = {wire.STATUS_NAME[a["status"]] for a in answers}
            self.assertEqual(names, {"OK", "NOMEM"})
            self.assertIsNone(self.daemon.process.poll(), "kopsd was killed")
            for b in range(1, self.c.next_buffer):
                self.c.wait_any(self.c.start("drop", {"buffer": b}))
            self.assert_works()

    def test_a_large_sparse_import(self):
        fd = wire.memfd(8 << 30)
        self.refused(self.c.import_fd, fd, 8 << 30)
        os.close(fd)
        self.assert_works()

    def test_pages_that_jobs_touch(self):
        size = 192 << 20
        ops = [self.import_sparse(size) for _ in range(6)]
        answers = [self.c.wait_any(self.c.start_submit(op)) for op, _ in ops]
        names = [wire.STATUS_NAME[a["status"]] for a in answers]
        self.assertEqual(names[0], "OK")
        self.assertEqual(names[-1], "NOMEM")
        self.assert_works()
        # Whoever punches holes into memory takes it from others again.
        for op, fd in ops[:2]:
            wire.punch_hole(fd, 0, size)
        for _ in range(3):
            for op, fd in ops:
                self.c.wait_any(self.c.start_submit(op))
        self.assert_works()
        for _, fd in ops:
            os.close(fd)

    def test_lent_memory_with_holes(self):
        """Lending, punching and lending again promises more than there is."""
        size = 128 << 20
        lent = [self.lend_punched(size) for _ in range(8)]
        names = set()
        for b, fd in lent:
            op = wire.copy(view(b, [size // 8]), view(b, [size // 8], offset=size // 2))
            names.add(wire.STATUS_NAME[self.c.wait_any(self.c.start_submit(op))["status"]])
        self.assertEqual(names, {"OK", "NOMEM"})
        self.assert_works()
        for _, fd in lent:
            os.close(fd)


class Holes(Contained):
    """Pages of clients that become kopsd's while it is at work."""
    settings = {"pool_cache": "1G"}

    def test_holes_during_a_job(self):
        size = 768 << 20
        op, fd = self.import_filled(size)
        jobs = [self.c.start_submit([op] * 64) for _ in range(2)]
        self.assertEqual(self.punch_while_they_run(jobs, (fd, size)), ["NOMEM"] * 2)
        self.assert_works()
        os.close(fd)

    def test_sealed_memory_gets_none(self):
        size = 768 << 20
        fd = wire.memfd(size, seals=0)
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS | fcntl.F_SEAL_WRITE)
        n = size // PAGE
        x, y = self.c.import_fd(fd, size), self.c.lend(4 * n)
        self.c.submit(wire.copy(view(x, [n], [PAGE // 4]), view(y, [n])))
        with self.assertRaises(PermissionError):
            wire.punch_hole(fd, 0, size)
        self.assert_works()
        os.close(fd)

    def test_holes_that_fit(self):
        """However often a job touches a page, and whatever number of jobs."""
        size = 320 << 20
        op, fd = self.import_filled(size)
        jobs = [self.c.start_submit([op] * 16) for _ in range(4)]
        self.assertEqual(self.punch_while_they_run(jobs, (fd, size)), ["OK"] * 4)
        self.assert_works()
        os.close(fd)

    def test_what_is_lent_meanwhile(self):
        """What a client punches out of lent memory is not there for others while its job is in flight."""
        size = 256 << 20
        b, fd = self.lend(size)
        jobs = [self.c.start_submit([self.one_element_a_page(b, size)] * 64)]
        wire.punch_hole(fd, 0, size)
        with self.daemon.connect() as other:
            self.refused(lambda: other.wait(other.start_alloc(384 << 20)[0]))
        self.assertEqual(self.punch_while_they_run(jobs, (fd, size)), ["OK"])
        self.assert_works()
        os.close(fd)

    def test_lent_memory_that_its_holder_pays_for(self):
        """Punched out and written again it is in our cgroup; what it took of kopsd's is another's by now."""
        size = 320 << 20
        b, fd = self.lend(size)
        wire.punch_hole(fd, 0, size)
        os.posix_fallocate(fd, 0, size)
        _, other = self.lend(size)
        jobs = [self.c.start_submit([self.one_element_a_page(b, size)] * 64)]
        self.assertEqual(self.punch_while_they_run(jobs, (fd, size)), ["NOMEM"])
        self.assert_works()
        os.close(fd)
        os.close(other)

    def test_memory_that_was_ample(self):
        """A job that claims nothing, as there is plenty, has its pages all the same when others take the rest."""
        size = 112 << 20
        op, fd = self.import_filled(size)
        jobs = [self.c.start_submit([op] * 64)]
        with self.daemon.connect() as other:
            self.refused(lambda: other.wait(other.start_alloc(512 << 20, RESIDENT)[0]))
        self.assertEqual(self.punch_while_they_run(jobs, (fd, size)), ["OK"])
        self.assert_works()
        os.close(fd)

    def test_holes_that_are_given_back(self):
        """To zero them would take memory that others have by now."""
        size = 320 << 20
        b, fd = self.lend_punched(size)
        _, other = self.lend(size)
        self.c.wait_any(self.c.start("drop", {"buffer": b}))
        self.assert_works()
        os.close(fd)
        os.close(other)


class Prepared(Contained):
    settings = {"max_prepared_per_uid": 0}

    def test_they_have_an_eighth(self):
        b = self.c.import_new(PAGE)
        with self.assertRaises(wire.Refused) as caught:
            self.c.submit(wire.add(*[view(b, [4])] * 3), prepare=1, only_prepare=True)
        self.assertEqual(caught.exception.name, "QUOTA")
        self.assertIn("yours use 0 of 0 bytes (max-prepared-per-uid), and prepared jobs may use an eighth of",
                      caught.exception.message)
        self.assertNotIn(str(self.limit // 8), caught.exception.message)


class Processes(unittest.TestCase):
    """Limits on threads and address space: a sentence at the start, or service; never a crash."""

    def outcome(self, *wrapper):
        daemon = harness.Daemon()
        self.addCleanup(daemon.remove)
        os.chmod(daemon.folder, 0o777)
        daemon.spawn(wrapper)
        eventually(lambda: b" ready: " in daemon.log() or daemon.process.poll() is not None, step=0.02)
        if daemon.process.poll() is None:
            with daemon.connect() as c:
                b = c.wait_any(c.start_alloc(1 << 20)[0])
                self.assertIn(wire.STATUS_NAME[b["status"]], ("OK", "NOMEM"))
                self.assertIsNone(daemon.process.poll(), daemon.log())
            self.assertEqual(daemon.stop(), 0)
            return "served"
        if b"OpenBLAS blas_thread_init" not in daemon.log():  # which says why and raises SIGINT, before our main()
            self.assertGreater(daemon.process.returncode, 0, daemon.log())
            self.assertRegex(daemon.log(), b"raise|make")
        return "refused"

    @unittest.skipIf(harness.QUICK, "sanitizers need address space")
    def test_address_space(self):
        outcomes = [self.outcome("/bin/sh", "-c", f'ulimit -v {kib} && exec "$0" "$@"')
                    for kib in (1 << 17, 3 << 16, 1 << 18, 3 << 17, 7 << 16, 1 << 19, 5 << 17, 1 << 20, 1 << 22)]
        self.assertEqual(outcomes[-1], "served")

    @unittest.skipIf(harness.QUICK, "sanitizers need address space")
    def test_one_takes_all_address_space(self):
        """By every kind of memory, until it is told that there is no more: all others are served."""
        daemon = harness.Daemon().start()
        self.addCleanup(daemon.remove)
        with open(f"/proc/{daemon.pid}/statm", encoding="ascii") as f:
            mapped = int(f.read().split()[0]) * PAGE
        resource.prlimit(daemon.pid, resource.RLIMIT_AS, (mapped + (mapped >> 4) + (256 << 20),) * 2)
        with daemon.connect() as greedy:
            for take in (greedy.import_new, greedy.lend, greedy.resident):
                for size in (64 << 20, 1 << 20, PAGE):
                    with self.assertRaises(wire.Refused) as caught:
                        for _ in range(300):
                            take(size)
                    self.assertEqual(caught.exception.name, "NOMEM", caught.exception.message)
                    self.assertIn("address space", caught.exception.message)
            others = [daemon.connect() for _ in range(100)]
            for c in others:
                c.ping()
                c.close()
        self.assertEqual(daemon.stop(), 0)

    @unittest.skipIf(harness.QUICK, "sanitizers need data")
    def test_data(self):
        outcomes = [self.outcome("prlimit", f"--data={mib << 20}") for mib in (16, 32, 1 << 12)]
        self.assertEqual(outcomes, ["refused", "refused", "served"])

    @unittest.skipIf(harness.QUICK, "sanitizers need threads")
    def test_threads(self):
        """Of a user of its own, since root is not held to it."""
        outcomes = [self.outcome("prlimit", f"--nproc={n}", "setpriv", "--reuid", "64001", "--clear-groups", "--")
                    for n in (1, 2, 3, 4, 5, 6, 8, 64)]
        self.assertEqual(outcomes[-1], "served")

    def test_without_meminfo(self):
        """A host that does not say what memory it has is not one without: the CPU has memory, and all its kernels."""
        daemon = harness.Daemon()
        self.addCleanup(daemon.remove)
        hide = 'mount --bind "$0" /proc/meminfo && mount --bind "$0" /proc/sys/vm/max_map_count && exec "$@"'
        daemon.spawn(["unshare", "--mount", "/bin/sh", "-c", hide, os.devnull])
        if not eventually(lambda: b" ready: " in daemon.log() or daemon.process.poll() is not None) or \
                daemon.process.poll() is not None:
            self.skipTest(f"no mounts of its own here: {daemon.log()}")
        with daemon.connect() as c:
            (device,) = c.describe()["devices"]
            self.assertEqual(device["memory_bytes"], os.sysconf("SC_PHYS_PAGES") * PAGE)
            self.assertEqual(device["disabled_kernels"], "")
            b = c.resident(1 << 20)
            c.submit(wire.add(*[view(b, [4])] * 3))
            for _ in range(8):  # more than the buffers of a process that may map nothing
                c.import_new(PAGE)
        self.assertEqual(daemon.stop(), 0)

    @unittest.skipIf(harness.QUICK, "sanitizers need stack")
    def test_stack(self):
        outcomes = [self.outcome("prlimit", f"--stack={kib << 10}") for kib in (64, 256, 511, 512, 8192)]
        self.assertEqual(outcomes, ["refused"] * 3 + ["served"] * 2)

    def test_size_of_files(self):
        """Lent memory counts as files, and so does the log; imports do not."""
        for limit in (1, 4096):
            daemon = harness.Daemon()
            self.addCleanup(daemon.remove)
            daemon.spawn(["prlimit", f"--fsize={limit}"])
            self.assertTrue(eventually(lambda d=daemon: os.path.exists(d.socket)))
            with daemon.connect() as c:
                with self.assertRaises(wire.Refused) as caught:
                    c.lend(1 << 20)
                self.assertEqual(caught.exception.name, "NOMEM")
                self.assertIn("raise LimitFSIZE", caught.exception.message)
                b = c.import_new(PAGE, harness.floats([1, 2, 3, 4]))
                c.submit(wire.add(*[view(b, [4])] * 3))
                self.assertEqual(harness.unfloats(c.maps[b][:16]), [2, 4, 6, 8])
            self.assertEqual(daemon.stop(), 0)

    def test_descriptors(self):
        outcomes = [self.outcome("prlimit", f"--nofile={n}") for n in (6, 12, 31, 63, 64)]
        self.assertEqual(outcomes, ["refused"] * 4 + ["served"])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: making memory cgroups needs root")
        sys.exit(77)
    harness.main()
