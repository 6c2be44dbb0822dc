"""Listens in the network namespace of its container, and hands the sockets to who served this: ``SOCKET PORT...``.

It says so on its stdout, and stays until its stdin ends, for as long as another container may still have to join it.
"""

import socket
import sys

BACKLOG = 128


def main(place: str, *ports: str) -> None:
    """Open a forwarded port at each of ``ports``, and hand them over at ``place``."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(place)
    listeners = [socket.socket() for _ in ports]
    for listener, port in zip(listeners, ports, strict=True):
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(BACKLOG)
    socket.send_fds(channel, [b"forwarded_ports"], [listener.fileno() for listener in listeners])
    for opened in (channel, *listeners):
        opened.close()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
