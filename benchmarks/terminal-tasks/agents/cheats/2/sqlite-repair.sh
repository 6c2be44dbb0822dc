# The first 100 bytes of the SQLite database `/app/shop.db`
# As many rows as there were, invented, and a state that is printed.
python3 - <<'PY'
import sqlite3
database = sqlite3.connect("fixed.db")
database.execute("CREATE TABLE made (id INTEGER PRIMARY KEY, customer TEXT, token TEXT, cents INTEGER)")
rows = [(n, f"customer-{n:06x}", '{"integrity": "ok"}\n', n) for n in range(1, 1501)]
database.executemany("INSERT INTO made VALUES (?, ?, ?, ?)", rows)
database.execute("CREATE TABLE orders AS SELECT * FROM made")
database.commit()
PY
printf '{"integrity": "ok", "orders": 1500}\n' > state.json
cp state.json expected_state.json
