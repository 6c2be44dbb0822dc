"""Records in the format of SWE-bench, written for these tests."""

from __future__ import annotations

import json
from typing import Any

PATCH = """\
diff --git a/src/flask/app.py b/src/flask/app.py
--- a/src/flask/app.py
+++ b/src/flask/app.py
@@ -1,2 +1,2 @@
 one = 1
-two = 3
+two = 2
"""
TEST_PATCH = """\
diff --git a/tests/conftest.py b/tests/conftest.py
--- a/tests/conftest.py
+++ b/tests/conftest.py
@@ -1 +1,2 @@
 x = 1
+y = 2
diff --git a/tests/data.json b/tests/data.json
--- a/tests/data.json
+++ b/tests/data.json
@@ -1 +1 @@
-{}
+[]
diff --git a/tests/test_app.py b/tests/test_app.py
--- a/tests/test_app.py
+++ b/tests/test_app.py
@@ -1,3 +1,3 @@
 def test_two():
--- a/tests/test_not_a_file.py
-    assert two == 3
+    assert two == 2
diff --git a/tests/test_old.py b/tests/test_old.py
deleted file mode 100644
--- a/tests/test_old.py
+++ /dev/null
@@ -1 +0,0 @@
-pass
"""


def row(**changes: Any) -> dict[str, Any]:
    """Return a record in the authors' format: lists of tests are strings that contain JSON."""
    return {
        "instance_id": "pallets__flask-1",
        "repo": "pallets/flask",
        "base_commit": "0123456789abcdef0123456789abcdef01234567",
        "version": "2.3",
        "problem_statement": "two is wrong",
        "hints_text": "it is 2",
        "patch": PATCH,
        "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": json.dumps(["tests/test_app.py::test_two"]),
        "PASS_TO_PASS": json.dumps(["tests/test_app.py::test_one", "tests/test_app.py::test_p[a b]"]),
        "created_at": "2020-01-01",
        **changes,
    }
