"""Prints a greeting for each name."""

import json
import pkgutil
import sys


def main():
    """Greet everybody on the command line."""
    strings = json.loads(pkgutil.get_data("hello", "strings.json"))
    for name in sys.argv[1:]:
        print(f"{strings['greeting']}, {name}{strings['mark']}")


if __name__ == "__main__":
    main()
