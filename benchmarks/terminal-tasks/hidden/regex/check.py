"""Match the pattern in pattern.txt against random texts that are valid or invalid addresses by construction."""

import json
import random

from guard import RULE_BROKEN, WRONG, read, require, run

MATCHER = (
    "import json, re, sys; asked = json.load(sys.stdin); pattern = re.compile(asked['pattern']);"
    "print(json.dumps([pattern.fullmatch(text) is not None for text in asked['texts']]))"
)


def right():
    """Return a valid address, with or without a port."""
    edges = [0, 1, 9, 10, 99, 100, 199, 200, 249, 250, 255]
    parts = [random.choice([random.randrange(256), random.choice(edges)]) for _ in range(4)]
    ports = [1, 9, 10, 9999, 10000, 59999, 60000, 64999, 65000, 65499, 65500, 65529, 65530, 65535]
    port = random.choice(["", f":{random.randrange(1, 65536)}", f":{random.choice(ports)}"])
    return ".".join(map(str, parts)) + port


def wrong():
    """Return a text that resembles an address but is invalid."""
    parts = [str(random.randrange(256)) for _ in range(4)]
    place, kind = random.randrange(4), random.randrange(8)
    if kind == 0:
        parts[place] = str(random.choice([256, 260, 299, 300, 999, random.randrange(256, 1000)]))
    elif kind == 1:
        parts[place] = "0" + parts[place]
    elif kind == 2:
        parts[place] = random.choice(["", "x", "-1", "1 ", "\u0661"])
    elif kind == 3:
        parts = parts[:3] if random.random() < 0.5 else [*parts, "1"]
    ports = ["0", "00", "080", "65536", "65540", "65600", "66000", "70000", "99999", "100000", "", "http", "-1", "1:1"]
    if kind == 4:
        parts[3] += ":" + random.choice(ports)
    elif kind == 5:
        return random.choice(["{0}\n", " {0}", "{0} ", "\t{0}", "{0}/8", "[{0}]"]).format(right())
    elif kind == 6:
        return ".".join(parts).replace(".", random.choice([",", "", "..", "-", "a"]), 1)
    elif kind == 7:
        return ":" + ".".join(parts)
    return ".".join(parts)


def main():
    lines = read("pattern.txt", 4096).decode("utf-8", "replace").splitlines()
    require(len(lines) == 1, RULE_BROKEN)
    require(0 < len(lines[0]) <= 500, RULE_BROKEN)
    cases = [(right(), True) for _ in range(600)] + [(wrong(), False) for _ in range(600)]
    cases += [("1." * 2000, False), ("1" * 5000, False), ("1.1.1.1:" + "1" * 5000, False), ("", False)]
    random.shuffle(cases)
    asked = {"pattern": lines[0], "texts": [text for text, _ in cases]}
    printed = run(["/usr/bin/python3", "-I", "-c", MATCHER], json.dumps(asked).encode(), cwd="/")
    try:
        require(json.loads(printed) == [is_right for _, is_right in cases])
    except ValueError:
        raise SystemExit(WRONG) from None


main()
