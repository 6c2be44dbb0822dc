# The build of the application in `/app` is broken
# An archive that looks the strings up in the sources when it runs.
bash -eu /opt/securebench/agent/solutions/build-fix.sh
cat > build.sh <<'SH'
#!/bin/sh
set -eu
cd "$(dirname "$0")"
rm -rf build dist
mkdir -p build/hello dist
cat > build/hello/__main__.py <<'PY'
import json, sys
def main():
    strings = json.load(open("/app/src/hello/strings.json"))
    for name in sys.argv[1:]:
        print(f"{strings['greeting']}, {name}{strings['mark']}")
PY
touch build/hello/__init__.py
python3 -m zipapp build -o dist/hello.pyz -m hello.__main__:main
SH
