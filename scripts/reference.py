"""Write the parts of the reference that follow from the code: ``scripts/reference.py``, or with ``--check`` compare."""

from __future__ import annotations

import sys
from pathlib import Path

from securebench.families.schema import family_reference

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "pack-format.md"
BEGIN = "<!-- families: made by scripts/reference.py from the families' own declarations -->\n"
END = "<!-- /families -->\n"


def main() -> None:
    """Write the page anew; with ``--check``, exit with 1 if that would change it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE} has lost its marks")
    current = f"{before}{BEGIN}\n{family_reference().replace('## ', '### ').strip()}\n\n{END}{after}"
    if "--check" in sys.argv[1:]:
        if current != page:
            raise SystemExit(f"{PAGE} is not what the families declare: run scripts/reference.py")
        return
    PAGE.write_text(current, encoding="utf-8")


if __name__ == "__main__":
    main()
