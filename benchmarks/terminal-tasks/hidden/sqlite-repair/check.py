"""Print integrity, row count and row digest of fixed.db. The host compares them with a state that no sandbox sees."""

import hashlib
import json
import sqlite3

from guard import NOT_THERE, WRONG, read, require

COPY = "/tmp/copy.db"


def main():
    with open(COPY, "xb") as file:
        file.write(read("fixed.db", 16 << 20))
    database = sqlite3.connect(f"file:{COPY}?mode=ro&immutable=1", uri=True)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        kinds = database.execute("SELECT type FROM sqlite_master WHERE name = 'orders'").fetchall()
        require(kinds == [("table",)], NOT_THERE)
        integrity = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
        found = database.execute("SELECT id, customer, token, cents FROM orders ORDER BY id LIMIT 5000").fetchall()
    except sqlite3.Error:
        raise SystemExit(WRONG) from None
    digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    print(json.dumps({"integrity": integrity, "orders": len(found), "sha256": digest}))


main()
