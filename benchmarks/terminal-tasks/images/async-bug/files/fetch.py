"""Fetch values: ``fetch.py HOST PORT LIMIT``, ids on stdin, a line each; values on stdout, in the same order.

A request is ``GET <id>`` and a newline on a connection of its own; the answer is ``OK <value>`` or ``BUSY``. A request
that was answered with ``BUSY`` is made again, up to three times in all; then its value is ``-``.
"""

import asyncio
import sys

results = []


async def fetch(host, port, name):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {name}\n".encode())
    answer = (await reader.readline()).decode().strip()
    if answer == "BUSY":
        fetch(host, port, name)
    results.append(answer.removeprefix("OK "))


async def main(host, port, limit):
    names = sys.stdin.read().split()
    await asyncio.gather(*(fetch(host, port, name) for name in names), return_exceptions=True)
    print("\n".join(results))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
