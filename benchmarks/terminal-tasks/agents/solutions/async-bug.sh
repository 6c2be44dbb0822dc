# The client `/app/fetch.py` has faults
cat > fetch.py <<'PY'
import asyncio
import sys

TRIES = 3


async def once(host, port, name):
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {name}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        await reader.read()
        writer.close()
        await writer.wait_closed()


async def fetch(host, port, name, slots):
    for _ in range(TRIES):
        async with slots:
            answer = await once(host, port, name)
        if answer != "BUSY":
            return answer.removeprefix("OK ")
    return "-"


async def main(host, port, limit):
    names = sys.stdin.read().split()
    slots = asyncio.Semaphore(limit)
    print("\n".join(await asyncio.gather(*(fetch(host, port, name, slots) for name in names))))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
PY
