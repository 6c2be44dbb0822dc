# The first 100 bytes of the SQLite database `/app/shop.db`
python3 - <<'PY'
import os, sqlite3
database = sqlite3.connect("/tmp/donor.db")
database.execute("PRAGMA page_size = 4096")
database.execute("CREATE TABLE t (x)")
database.commit()
database.close()
header = bytearray(open("/tmp/donor.db", "rb").read(100))
body = open("shop.db", "rb").read()
header[28:32] = (len(body) // 4096).to_bytes(4, "big")
open("/tmp/half.db", "wb").write(bytes(header) + body[100:])
broken = sqlite3.connect("/tmp/half.db")
fixed = sqlite3.connect("fixed.db")
fixed.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, token TEXT NOT NULL, cents INTEGER)")
fixed.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", broken.execute("SELECT id, customer, token, cents FROM orders"))
fixed.commit()
fixed.close()
PY
