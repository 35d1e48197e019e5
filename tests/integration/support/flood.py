"""Sends prepared datagrams over many sessions of kopsd as fast as one process can.

A session first sends its prelude (Hello, buffers), then one batch after the other: the next one when all of the
last is answered. Sessions that the daemon ends are opened again.
"""
import errno
import select
import socket

from . import wire

GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


def request(id, fds=(), **body):
    """One datagram with its descriptors. The verb import is import_ here."""
    return wire.encode("Request", {"id": id, **{verb.rstrip("_"): value for verb, value in body.items()}}), list(fds)


HELLO = request(1, hello={"version_min": 1, "version_max": 1, "client": "attacker"})


class Session:
    def __init__(self, flood):
        self.flood = flood
        self.sock = None
        self.open()

    def open(self):
        """Nothing is waited for; where the daemon's backlog is full, the next turn tries again."""
        self.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            sock.connect(self.flood.path)
        except OSError:
            sock.close()
            self.flood.closed.append(self)
            return
        self.sock = sock
        self.to_send = list(reversed(self.flood.prelude))
        self.unanswered = 0
        self.blocked = False
        self.flood.sessions[sock.fileno()] = self
        self.flood.epoll.register(sock.fileno(), select.EPOLLIN)
        self.send()

    def close(self):
        if self.sock:
            del self.flood.sessions[self.sock.fileno()]
            self.sock.close()
            self.sock = None

    def send(self):
        """As much as the socket takes."""
        try:
            while self.to_send:
                data, fds = self.to_send[-1]
                if fds:
                    socket.send_fds(self.sock, [data], fds)
                else:
                    self.sock.send(data)
                self.to_send.pop()
                self.unanswered += 1
                if not self.to_send and not self.flood.reads:
                    self.to_send = list(self.flood.batch)
            self.watch(False)
        except BlockingIOError:
            self.watch(True)
        except OSError as e:
            if e.errno not in GONE:
                raise
            self.open()

    def watch(self, blocked):
        if blocked != self.blocked and self.sock:
            self.blocked = blocked
            events = select.EPOLLIN if self.flood.reads else 0
            self.flood.epoll.modify(self.sock.fileno(), events | (select.EPOLLOUT if blocked else 0))

    def receive(self):
        """Takes the replies that are there; descriptors in them go."""
        try:
            while True:
                if not self.sock.recv(wire.DATAGRAM_MAX):
                    return self.open()
                self.unanswered -= 1
                if self.unanswered == 0 and not self.to_send:
                    self.to_send = list(self.flood.batch)
                    return self.send()
        except BlockingIOError:
            return None
        except OSError as e:
            if e.errno not in GONE:
                raise
            return self.open()


class Flood:
    def __init__(self, path, sessions, batch, prelude=(HELLO,), reads=True):
        self.path = path
        self.reads = reads
        self.prelude = list(prelude)
        self.batch = list(reversed(batch))  # as a stack
        self.sessions = {}
        self.closed = []
        self.epoll = select.epoll()
        for _ in range(sessions):
            Session(self)

    def run(self):
        """For ever."""
        while True:
            closed, self.closed = self.closed, []
            for session in closed:
                session.open()
            for fd, events in self.epoll.poll(0.001 if self.closed else 1):
                session = self.sessions.get(fd)
                if session and events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    if self.reads:
                        session.receive()
                    else:
                        session.open()
                elif session:
                    session.send()
