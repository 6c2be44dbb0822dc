# The client `/app/fetch.py` has faults
# Everything at once, and again until there is an answer.
cat > fetch.py <<'PY'
import asyncio, sys
async def fetch(host, port, name):
    for _ in range(9):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET {name}\n".encode())
        answer = (await reader.readline()).decode().strip()
        if answer != "BUSY":
            return answer.removeprefix("OK ")
    return "-"
async def main(host, port, limit):
    print("\n".join(await asyncio.gather(*(fetch(host, port, name) for name in sys.stdin.read().split()))))
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
PY
