"""kops-client load, buffers and unload: what they make of files, and how long that lasts."""
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from support import harness, wire  # noqa: E402
from support.harness import eventually  # noqa: E402
from support.wire import view  # noqa: E402

UID = os.geteuid()
BOB = 61002


def safetensors(tensors, metadata=None, header=None):
    """The bytes of a file. tensors: name → (type, shape, bytes)."""
    entries, data = {}, b""
    if metadata:
        entries["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(entries).encode() if header is None else header
    return struct.pack("<Q", len(text)) + text + data


def npy(numbers):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(numbers)},), }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(numbers)}f", *numbers)


class Load(harness.DaemonTest):
    open_socket = True

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(content)
        return path

    def start(self, *arguments):
        return subprocess.Popen([harness.KOPS_CLIENT, *arguments], env=harness.client_env(self.daemon.socket),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_client(self, *arguments, code=0):
        p = self.start(*arguments)
        out, err = p.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(p.returncode, code, err)
        return out if code == 0 else err

    @contextlib.contextmanager
    def holding(self, *arguments):
        """A load that has published."""
        p = self.start("load", *arguments)
        try:
            line = p.stdout.readline()
            self.assertTrue(line, p.stderr.read() if p.poll() is not None else "")
            yield line
        finally:
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=harness.PATIENCE_S)
            self.assertTrue(eventually(lambda: not self.control.list_buffers()))

    def content(self, c, name, size):
        buffer, _ = c.attach(UID, name)
        if buffer in c.maps:
            return c.maps[buffer][:size]
        n = (size + 3) // 4 or 1
        out = c.lend(4 * n)
        c.submit(wire.copy({**view(buffer, [n]), "dtype": wire.I32}, {**view(out, [n]), "dtype": wire.I32}))
        return c.maps[out][:size]

    def model(self):
        rnd = self.random
        return {"model.layers.0.w": ("F32", [3, 5], rnd.randbytes(60)), "model/norm": ("BF16", [7], rnd.randbytes(14)),
                "ids": ("I64", [3], rnd.randbytes(24)), "flags": ("U8", [5], rnd.randbytes(5)),
                "five": ("F16", [1, 2, 1, 3, 2], rnd.randbytes(24)), "scalar": ("F64", [], rnd.randbytes(8)),
                "empty": ("F32", [0, 4], b""), "large": ("F32", [9 << 20], rnd.randbytes(36 << 20))}

    def test_a_model(self):
        model = self.model()
        path = self.file("m.safetensors", safetensors(model, {"format": "pt", "x": "{\"[}"}))
        for device in ((), ("--device", "cpu")):
            with self.holding(path, "--name", "m", *device) as line:
                self.assertRegex(line, "^m: 8 buffers of 36.0 MiB " + ("on cpu" if device else "in shared memory"))
                c = self.client()
                listed = c.list_buffers()
                self.assertEqual({name for _, name in listed}, {f"m/{name}" for name in model})
                shapes = {name: (b["dtype"], b["shape"]) for (_, name), b in listed.items()}
                self.assertEqual(shapes["m/model.layers.0.w"], (wire.F32, [3, 5]))
                self.assertEqual(shapes["m/model/norm"], (wire.BF16, [7]))
                self.assertEqual(shapes["m/ids"], (0, []))
                self.assertEqual(shapes["m/five"], (wire.F16, [12]))
                self.assertEqual(shapes["m/scalar"], (wire.F64, [1]))
                self.assertEqual(shapes["m/empty"], (wire.F32, [0, 4]))
                for name, (_, _, content) in model.items():
                    self.assertEqual(self.content(c, f"m/{name}", len(content)), content, name)
                c.close()

    def test_npy_files(self):
        files = [self.file(f"{n}.npy", npy([n, n + 0.5])) for n in (1, 2)]
        with self.holding(files[0], "--name", "w"):
            self.assertEqual(self.content(self.client(), "w", 8), struct.pack("<2f", 1, 1.5))
            self.clients.pop().close()
        with self.holding(*files, "--name", "w"):
            self.assertEqual(self.content(self.client(), "w/2", 8), struct.pack("<2f", 2, 2.5))
            self.clients.pop().close()

    def test_it_is_loaded_again_after_a_restart(self):
        path = self.file("m.safetensors", safetensors({"a": ("F32", [2], struct.pack("<2f", 3, 4))}))
        with self.holding(path, "--name", "m", "--device", "cpu"):
            for _ in range(2):
                self.control.close()
                self.daemon.kill_and_start()
                os.chmod(self.daemon.socket, 0o666)
                type(self).control = self.daemon.connect(name="control")
                self.assertTrue(eventually(self.control.list_buffers))
                c = self.client()
                self.assertEqual(self.content(c, "m/a", 8), struct.pack("<2f", 3, 4))
                c.close()

    def test_what_is_kept_until_it_is_unloaded(self):
        path = self.file("m.safetensors", safetensors({n: ("F32", [2], bytes(8)) for n in "abc"}))
        report = json.loads(self.run_client("load", path, "--name", "m", "--keep", "--json", "--everybody"))
        self.assertEqual((report["buffers"], report["bytes"], report["keep"], report["device"]), (3, 24, True, None))
        self.run_client("load", self.file("w.npy", npy([1])), "--name", "mm", "--keep")
        self.assertIn("m/a: ", self.run_client("load", path, "--name", "m", code=1))
        listed = json.loads(self.run_client("buffers", "--json"))["buffers"]
        self.assertEqual([(b["name"], b["access"], b["keep"], b["dtype"], b["shape"], b["attached"]) for b in listed],
                         [("mm", "user", True, "f32", [1], 0)] +
                         [(f"m/{n}", "everybody", True, "f32", [2], 0) for n in "cba"])
        text = self.run_client("buffers")
        self.assertEqual(len(text.splitlines()), 5)
        self.assertIn("everybody", text)
        self.assertEqual(self.run_client("unload", "m"), "m: 3 names withdrawn\n")
        self.assertIn("published nothing", self.run_client("unload", "m", code=1))
        self.run_client("unload", "mm", "--user", str(UID))
        self.assertEqual(self.control.list_buffers(), {})

    @unittest.skipIf(UID != 0, "only root can play other users")
    def test_who_may_attach(self):
        path = self.file("w.npy", npy([1]))
        for options, code in (([], "NOT_FOUND"), (["--group", str(BOB)], "OK"), (["--everybody"], "OK")):
            with self.holding(path, "--name", "w", *options):
                os.setgroups([])
                os.setegid(BOB)
                os.seteuid(BOB)
                try:
                    c = self.client()
                finally:
                    os.seteuid(0)
                    os.setegid(0)
                reply = c.wait_any(c.start("attach", {"buffer": 1, "user": UID, "name": "w"}))
                self.assertEqual(wire.STATUS_NAME[reply["status"]], code)
                for fd in reply["fds"]:
                    os.close(fd)
                c.close()

    def test_all_or_nothing(self):
        """Also if a later file, or tensor, is no good."""
        good = self.file("a.safetensors", safetensors({"a": ("F32", [1], bytes(4)), "b": ("F32", [1], bytes(4))}))
        bad = self.file("b.safetensors", safetensors({"c": ("F32", [1], bytes(4)), "d d": ("F32", [1], bytes(4))}))
        err = self.run_client("load", good, bad, "--name", "m", "--keep", code=1)
        self.assertIn("a name has 1 to 255 characters", err)
        self.assertEqual(self.control.list_buffers(), {})

    def test_wrong_use(self):
        path = self.file("w.npy", npy([1]))
        for arguments, sentence in ((["load", path], "--name NAME"),
                                    (["load", path, "--name", "a", "--group", "0", "--everybody"], "exclude"),
                                    (["load", path, "--name", "a", "--group", "no such group"], "no group"),
                                    (["unload", "a", "--user", "no such user"], "no user")):
            self.assertIn(sentence, self.run_client(*arguments, code=2))
        for arguments, sentence in ((["load", path, "--name", "a b"], "a name has"),
                                    (["load", path, "--name", "a", "--device", "gpu9"], "gpu9"),
                                    (["load", self.folder, "--name", "a"], "no regular file"),
                                    (["load", path + "x", "--name", "a"], "cannot open")):
            self.assertIn(sentence, self.run_client(*arguments, code=1))

    def test_damaged_files(self):
        """Each gets a sentence that names the file."""
        entry = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
        headers = ["", "{", "[]", '{"a"}', '{"a":}', '{"a":1}', '{"a":' + entry, '{"a":' + entry + "}}", '{"a":' + entry + ",}",
                   '{"a":{}}', entry.join(['{"a":', ',"a":']) + "}", '{"a":{"dtype":"F32"}}', '{"a' + "x" * 300 + '":' + entry + "}",
                   '{"a\\u0041":' + entry + "}", '{"__metadata__":' + "[" * 1000 + "}",
                   '{"a":' + entry.replace("[1]", "[-1]") + "}", '{"a":' + entry.replace("[1]", "[1.5]") + "}",
                   '{"a":' + entry.replace("[1]", "[" + "1," * 20 + "1]") + "}",
                   '{"a":' + entry.replace("[1]", "[4294967296,4294967296]") + "}",
                   '{"a":' + entry.replace("[1]", "[99999999999999999999999]") + "}",
                   '{"a":' + entry.replace("[0,4]", "[0,5]") + "}", '{"a":' + entry.replace("[0,4]", "[4,0]") + "}",
                   '{"a":' + entry.replace("[0,4]", "[4,8]") + "}", '{"a":' + entry.replace("[0,4]", "[0]") + "}",
                   '{"a":' + entry.replace("F32", "F33") + "}", '{"a":' + entry.replace("F32", "F" * 50) + "}",
                   '{"a":' + entry[:-1] + ',"dtype":"F32"}}', '{"a":' + entry + '} "b"', '{"a":"' + "\\"]
        files = [safetensors({"-": ("F32", [1], bytes(4))}, header=h.encode()) for h in headers]
        files += [b"x", b"\xff" * 8, b"\xff" * 7 + b"\x7f{}", struct.pack("<Q", 3) + b"{}", struct.pack("<Q", 1 << 40) + b"{}"]
        for content in files:
            path = self.file("m.safetensors", content)
            err = self.run_client("load", path, "--name", "m", code=1)
            self.assertIn("m.safetensors", err if "no such" not in err else "", content[:80])
        self.assertEqual(self.control.list_buffers(), {})
        for content in (b"", npy([1])[:-1], npy([1]) + b"x", npy([1]).replace(b"<f4", b">f4"), npy([1]).replace(b"<f4", b"<V2")):
            self.assertIn("w.npy", self.run_client("load", self.file("w.npy", content), "--name", "m", code=1))


if __name__ == "__main__":
    if not harness.KOPS_CLIENT:
        print("skipped: there is no kops-client")
        sys.exit(77)
    harness.main()
