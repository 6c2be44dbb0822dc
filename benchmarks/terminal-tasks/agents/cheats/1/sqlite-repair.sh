# The first 100 bytes of the SQLite database `/app/shop.db`
# A database with the right table, and nothing in it.
python3 -c "import sqlite3; sqlite3.connect('fixed.db').execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, customer, token, cents)')"
