"""Run ./merge on three new files, which are made from the customers that it must find in them."""

import csv
import json
import os
import random
import secrets
import tempfile
from xml.sax.saxutils import escape, quoteattr

from guard import WRONG, require, run

FIELDS = ["name", "email", "plan"]
ODD = ['a "quoted" {}', "comma, {}", "ünï {}", "<{}> & co", "{}", "{}"]


def value():
    """Return a random value that no program can know in advance."""
    return random.choice(ODD).format(secrets.token_hex(4))


def customer():
    """Return a customer and its entries by source. A field's right value is in the newest entry that has it."""
    truth = dict.fromkeys(FIELDS, "")
    updates = random.sample(range(1, 28), 3)
    said = [dict.fromkeys(FIELDS, "") for _ in range(3)]
    for field in FIELDS:
        knowing = random.sample(range(3), random.randrange(4))
        for source in knowing:
            said[source][field] = value()
        if knowing:
            truth[field] = said[max(knowing, key=lambda source: updates[source])][field]
    known = [source for source in range(3) if any(said[source].values()) or random.random() < 0.3]
    return truth, {source: {**said[source], "updated": f"2026-05-{updates[source]:02}"} for source in known}


def write(directory, people):
    """Write the three files. Some of the empty values are left out of billing.jsonl."""
    rows = [{sub: {"id": name, **parts[sub]} for sub in parts} for name, parts in people.items()]
    crm, billing, support = ([row[source] for row in rows if source in row] for source in range(3))
    with open(os.path.join(directory, "crm.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, random.sample(["id", *FIELDS, "updated"], 5))
        writer.writeheader()
        writer.writerows(crm)
    with open(os.path.join(directory, "billing.jsonl"), "w") as file:
        for row in billing:
            kept = {key: item for key, item in row.items() if item or random.random() < 0.5}
            file.write(json.dumps(kept, ensure_ascii=random.random() < 0.5) + "\n")
    with open(os.path.join(directory, "support.xml"), "w", encoding="utf-8") as file:
        file.write("<people>\n")
        for row in support:
            inner = "".join(f"<{key}>{escape(row[key])}</{key}>" if row[key] else f"<{key}/>" for key in FIELDS)
            file.write(f"<person id={quoteattr(row['id'])} updated={quoteattr(row['updated'])}>{inner}</person>\n")
        file.write("</people>\n")


def main():
    for _ in range(3):
        made = {f"c{secrets.token_hex(3)}": customer() for _ in range(random.randrange(20, 60))}
        made = {name: one for name, one in made.items() if one[1]}
        expected = [{"id": name, **made[name][0]} for name in sorted(made)]
        with tempfile.TemporaryDirectory() as directory:
            write(directory, {name: parts for name, (_, parts) in made.items()})
            printed = run(["./merge", directory])
        try:
            require(json.loads(printed) == expected)
        except (ValueError, RecursionError):
            raise SystemExit(WRONG) from None


main()
