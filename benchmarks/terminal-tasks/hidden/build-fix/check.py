"""Change the sources, build from two working directories, move the sources away, and run the built archive."""

import json
import os
import secrets
import shutil

from guard import NOT_THERE, RULE_BROKEN, read, require, run

HERE = os.getcwd()
STRINGS = "src/hello/strings.json"


def build_and_greet():
    """Build with new strings, and require that the archive prints them."""
    greeting, mark = f"Hi {secrets.token_hex(8)}", secrets.token_hex(2)
    read(STRINGS)
    with open(STRINGS, "w") as file:
        json.dump({"greeting": greeting, "mark": mark}, file)
    run(["./build.sh"], cwd=HERE)
    run([os.path.join(HERE, "build.sh")], cwd="/")
    names = [secrets.token_hex(4) for _ in range(3)]
    require(os.path.isfile("dist/hello.pyz"), NOT_THERE)
    shutil.copy("dist/hello.pyz", f"/tmp/{greeting}.pyz")
    os.rename("src", "away")
    printed = run(["/usr/bin/python3", "-I", f"/tmp/{greeting}.pyz", *names], cwd="/")
    os.rename("away", "src")
    require(printed.decode("utf-8", "replace") == "".join(f"{greeting}, {name}{mark}\n" for name in names))


def main():
    require(os.path.isfile("build.sh") and os.access("build.sh", os.X_OK), NOT_THERE)
    require(not os.path.lexists("away"), RULE_BROKEN)
    for name in ("__init__.py", "__main__.py"):
        require(read(f"src/hello/{name}") == read(os.path.join(os.path.dirname(__file__), name)), RULE_BROKEN)
    build_and_greet()
    build_and_greet()


main()
