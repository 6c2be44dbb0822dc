# Write a program `/app/summarize`
cat > summarize <<'PY'
#!/usr/bin/python3
import gzip, json, math, re, sys
from collections import Counter, defaultdict
from pathlib import Path

LINE = re.compile(r"\S+ service=(\S+) method=\S+ path=([^\s?]+)\S* status=(\d+) ms=(\d+)\s*")
found = defaultdict(list)
for path in Path(sys.argv[1]).iterdir():
    if path.name.endswith((".log", ".gz")):
        with gzip.open(path, "rt") if path.name.endswith(".gz") else open(path) as lines:
            for line in lines:
                if match := LINE.fullmatch(line):
                    found[match[1]].append((match[2], int(match[3]), int(match[4])))
summary = {}
for service, requests in found.items():
    times = sorted(ms for _, _, ms in requests)
    paths = Counter(path for path, _, _ in requests)
    summary[service] = {
        "requests": len(requests),
        "errors": sum(status >= 500 for _, status, _ in requests),
        "p95_ms": times[math.ceil(0.95 * len(times)) - 1],
        "top_path": min(paths, key=lambda path: (-paths[path], path)),
    }
print(json.dumps(summary))
PY
chmod +x summarize
