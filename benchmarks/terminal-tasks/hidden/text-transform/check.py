"""Run clean.sed on random lines, each made together with its expected result.

The image's sed runs the script with ``--sandbox``, so the script can neither start programs nor write files.
"""

import random
import secrets

from guard import RULE_BROKEN, read, require, run


def word():
    """Return a word that the script must not change. It may have digits or punctuation."""
    return random.choice([secrets.token_hex(2), "C#", "a/b", "1/2", "x=$y", "3.14", "(see)", "it's"])


def piece():
    """Return a piece of a line and its expected result."""
    kind = random.randrange(4)
    if kind == 0:
        month, day, year = random.randrange(1, 13), random.randrange(1, 29), random.randrange(1900, 2100)
        before = random.choice([f"{month}/{day}/{year}", f"{month:02}/{day:02}/{year}"])
        return before, f"{year}-{month:02}-{day:02}"
    if kind == 1:
        amount = random.choice([str(random.randrange(1000)), f"{random.randrange(100)}.{random.randrange(100):02}"])
        return f"${amount}", f"USD {amount}"
    plain = word()
    return plain, plain


def blank():
    """Return spaces and tabs. Between two pieces of a line, they must become one space."""
    return "".join(random.choice(" \t") for _ in range(random.randrange(1, 5)))


def line():
    """Return a line and its expected result: ``None`` if the line must be removed."""
    if random.random() < 0.15:
        return random.choice(["", " ", "\t "]) + "#" + " ".join(piece()[0] for _ in range(3)), None
    if random.random() < 0.1:
        return random.choice(["", "  ", "\t"]), ""
    pieces = [piece() for _ in range(random.randrange(1, 9))]
    before = blank() * random.randrange(2) + pieces[0][0]
    for one, _ in pieces[1:]:
        before += blank() + one
    return before + random.choice(["", blank()]), " ".join(after for _, after in pieces)


def main():
    script = read("clean.sed", 64 * 1024)
    require(script.strip(), RULE_BROKEN)
    with open("/tmp/clean.sed", "xb") as file:
        file.write(script)
    for _ in range(3):
        lines = [line() for _ in range(200)]
        given = "".join(f"{before}\n" for before, _ in lines).encode()
        printed = run(["/usr/bin/sed", "-E", "--sandbox", "-f", "/tmp/clean.sed"], given, cwd="/")
        require(printed == "".join(f"{after}\n" for _, after in lines if after is not None).encode())


main()
