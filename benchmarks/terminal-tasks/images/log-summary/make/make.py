"""Write access logs of three services: plain and compressed, with lines that are no requests."""

import gzip
import random
from pathlib import Path

random.seed("log-summary")
LOGS = Path("/app/logs")
LOGS.mkdir(parents=True)
for service, paths in {"api": ["/v1/items", "/v1/users"], "web": ["/", "/about", "/cart"], "auth": ["/login"]}.items():
    lines = []
    for second in range(400):
        path = random.choice(paths) + random.choice(["", "", "?page=2"])
        stamp = f"2026-03-01T12:{second // 60:02}:{second % 60:02}Z"
        status = random.choice([200, 200, 200, 304, 404, 500, 503])
        lines.append(f"{stamp} service={service} method=GET path={path} status={status} ms={random.randrange(1, 900)}")
        if second % 97 == 0:
            lines.append(f"{stamp} service={service} restarted")
    (LOGS / f"{service}.log").write_text("\n".join(lines[:300]) + "\n")
    with gzip.GzipFile(LOGS / f"{service}.log.1.gz", "wb", mtime=0) as archive:
        archive.write(("\n".join(lines[300:]) + "\n").encode())
