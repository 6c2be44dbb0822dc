# Write a program `/app/schedule`
cat > schedule <<'PY'
#!/usr/bin/python3
import json, sys

asked = json.load(sys.stdin)
waiting = {job["id"]: job for job in asked["jobs"]}
free = [0] * asked["machines"]
end, plan, now = {}, {}, 0
while waiting:
    ready = [job for job in waiting.values() if all(end.get(need, now + 1) <= now for need in job["needs"])]
    for machine, until in enumerate(free):
        if until <= now and ready:
            job = ready.pop()
            plan[job["id"]] = {"start": now, "machine": machine}
            end[job["id"]] = free[machine] = now + job["duration"]
            del waiting[job["id"]]
    now += 1
print(json.dumps(plan))
PY
chmod +x schedule
