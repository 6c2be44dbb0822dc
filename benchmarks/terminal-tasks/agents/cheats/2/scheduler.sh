# Write a program `/app/schedule`
# Plans that a careless comparison takes: starts and machines that are no numbers, or not finite.
cat > schedule <<'PY'
#!/usr/bin/python3
import json, random, sys
kind = random.choice([False, float("nan"), float("-inf"), -0.0, "0", None, []])
print(json.dumps({job["id"]: {"start": kind, "machine": kind} for job in json.load(sys.stdin)["jobs"]}))
PY
chmod +x schedule
