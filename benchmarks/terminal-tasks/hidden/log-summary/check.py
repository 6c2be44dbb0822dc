"""Run ./summarize on new logs, which are made from random requests."""

import gzip
import json
import math
import os
import random
import sys
import tempfile

from guard import WRONG, require, run

SERVICES = ["api", "web", "auth", "mail", "search"]
NOISE = ["service={0} restarted", "", "garbage", "service={0} method=GET path=/x status=200", "service={0} ms=7"]


def requests_of(service):
    """Return random requests: (path, status, milliseconds). One path is requested more often than any other."""
    paths = [f"/{service}/{random.randrange(10**6)}" for _ in range(random.randrange(2, 6))]
    count = random.randrange(20, 200)
    wanted = [paths[0]] * (count // 2 + 1) + random.choices(paths[1:], k=count - count // 2 - 1)
    return [(path, random.choice([200, 204, 301, 404, 499, 500, 502, 599]), random.randrange(5000)) for path in wanted]


def lines_of(service, requests):
    """Return the lines of a log with these requests and with lines that are not requests, in random order."""
    query = ["", "", "?a=1", "?page=2&b=/x"]
    lines = [
        f"2026-04-0{random.randrange(1, 9)}T00:00:00Z service={service} method={random.choice(['GET', 'POST'])}"
        f" path={path}{random.choice(query)} status={status} ms={ms}"
        for path, status, ms in requests
    ]
    lines += [f"2026-04-01T00:00:00Z {random.choice(NOISE).format(service)}" for _ in range(10)]
    random.shuffle(lines)
    return lines


def write(directory, service, lines):
    """Distribute the lines over plain and compressed logs. Also write a file that is not a log."""
    parts = [lines[start::3] for start in range(3)]
    for name, part in zip([f"{service}.log", f"{service}.log.1.gz", f"old-{service}.log"], parts, strict=True):
        text = ("\n".join(part) + "\n").encode()
        path = os.path.join(directory, name)
        with gzip.open(path, "wb") if name.endswith(".gz") else open(path, "wb") as file:
            file.write(text)
    with open(os.path.join(directory, f"{service}.txt"), "w") as file:
        file.write("\n".join(lines[:5]))


def main():
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            expected = {}
            for service in random.sample(SERVICES, 3):
                requests = requests_of(service)
                times = sorted(ms for _, _, ms in requests)
                expected[service] = {
                    "requests": len(requests),
                    "errors": len([status for _, status, _ in requests if status >= 500]),
                    "p95_ms": times[math.ceil(0.95 * len(times)) - 1],
                    "top_path": requests[0][0],
                }
                write(directory, service, lines_of(service, requests))
            try:
                found = json.loads(run(["./summarize", directory]))
            except ValueError:
                sys.exit(WRONG)
            require(found == expected and "true" not in json.dumps(found).lower())


main()
