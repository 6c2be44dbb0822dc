#!/bin/sh
# Builds dist/hello.pyz from src.
mkdir build dist
cp source/hello/*.py build
python -m zipapp build -o dist/hello.pyz -m hello:main
