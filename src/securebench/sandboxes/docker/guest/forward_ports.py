"""Listen in this container's network namespace and send the sockets to the driver. Arguments: ``SOCKET PORT...``.

Prints ``open`` when done. Then it waits until its stdin is closed, so that another container can join its namespace.
"""

import socket
import sys

BACKLOG = 128


def main(address: str, *ports: str) -> None:
    """Listen at each of ``ports`` on loopback, and send the sockets to the Unix socket at ``address``."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(address)
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
