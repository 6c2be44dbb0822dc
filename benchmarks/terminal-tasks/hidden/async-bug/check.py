"""Run fetch.py against a server that makes up the values, counts connections and requests, and may be busy."""

import random
import secrets
import socket
import tempfile
import threading
import time

from guard import CRASHED, RULE_BROKEN, require, start, stop

TRIES = 3
PAUSE = 0.03


class Server:
    """A server on a free port that counts its connections and the requests for each name."""

    def __init__(self, busy):
        self.busy = dict(busy)
        self.values = {name: secrets.token_hex(6) for name in busy}
        self.asked = dict.fromkeys(busy, 0)
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        try:
            with connection:
                connection.settimeout(5)
                line = connection.makefile("rb").readline(100).decode("ascii", "replace")
                time.sleep(PAUSE * random.uniform(0.5, 1.5))
                with self.lock:  # before the answer: a client that has it may connect again at once
                    self.now -= 1
                connection.sendall(self.say(line.strip()))
        except OSError:
            pass

    def say(self, line):
        name = line.removeprefix("GET ")
        with self.lock:
            if name not in self.asked:
                return b"ERROR\n"
            self.asked[name] += 1
            return b"BUSY\n" if self.asked[name] <= self.busy[name] else f"OK {self.values[name]}\n".encode()


def main():
    for limit in (4, 7):
        names = [f"n{secrets.token_hex(3)}" for _ in range(60)]
        server = Server({name: random.choice([0, 0, 0, 1, 2, 3, 5]) for name in names})
        expected = "".join(f"{server.values[n] if server.busy[n] < TRIES else '-'}\n" for n in names).encode()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
            given.write("\n".join(names).encode() + b"\n")
            given.seek(0)
            process = start(
                ["/usr/bin/python3", "-I", "fetch.py", "127.0.0.1", str(server.port), str(limit)], given, printed
            )
            try:
                code = process.wait(20)
            except Exception:
                raise SystemExit(CRASHED) from None
            finally:
                stop(process)
            printed.seek(0)
            require(code == 0, CRASHED)
            require(printed.read(1 << 20) == expected)
        require(all(server.asked[n] == min(server.busy[n] + 1, TRIES) for n in names), RULE_BROKEN)
        require(limit // 2 < server.most <= limit, RULE_BROKEN)


main()
