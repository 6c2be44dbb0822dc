# The build of the application in `/app` is broken
cat > build.sh <<'SH'
#!/bin/sh
# Builds dist/hello.pyz from src.
set -eu
cd "$(dirname "$0")"
rm -rf build dist
mkdir build dist
cp -r src/hello build/hello
python3 -m zipapp build -o dist/hello.pyz -m hello.__main__:main
SH
