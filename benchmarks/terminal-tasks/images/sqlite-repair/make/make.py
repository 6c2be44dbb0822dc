"""Write a SQLite file of orders, and overwrite its header."""

import hashlib
import sqlite3
from pathlib import Path

PATH = Path("/app/shop.db")
HEADER = 100


def rows() -> list[tuple[int, str, str, int]]:
    """Return the orders: numbers that look random, and are the same each time."""
    made = []
    for number in range(1, 1501):
        digest = hashlib.sha256(f"order {number}".encode()).hexdigest()
        made.append((number, f"customer-{digest[:6]}", digest[6:26], int(digest[26:31], 16)))
    return made


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(PATH)
    database.executescript(
        "PRAGMA page_size = 4096; PRAGMA encoding = 'UTF-8';"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, token TEXT NOT NULL, cents INTEGER);"
        "CREATE INDEX by_customer ON orders (customer);"
    )
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows())
    database.commit()
    database.close()
    PATH.write_bytes(b"\0" * HEADER + PATH.read_bytes()[HEADER:])
