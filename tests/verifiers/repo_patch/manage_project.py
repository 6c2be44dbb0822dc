"""A Django project with ``manage.py``, an app with a bug, tests, and cheats, which are changes that fix nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.sandboxes.base import MIB, Limits
from securebench.testing.judging.repository import RepositoryJob
from securebench.testing.judging.unittests import patch
from verifiers.repo_patch.releases import DJANGO_NEEDS, add_repository_image, download_wheels, wheel_parts
from verifiers.repo_patch.runner_cheats import UNITTEST_RELEASE_CHEATS

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.store.image_store import ImageStore

VERSIONS = ("4.2.16", "5.0.9")
BROKEN = "def with_tax(price, percent):\n    return price + percent\n"
FIXED = "def with_tax(price, percent):\n    return price * (100 + percent) // 100\n"
WRONG = "def with_tax(price, percent):\n    return price * percent // 100\n"
_MANAGE = """\
#!/usr/bin/env python
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_shop.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
"""
_SETTINGS = """\
SECRET_KEY = "for tests"
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
ROOT_URLCONF = "site_of_shop.urls"
USE_TZ = True
"""
_URLS = """\
from django.urls import path

from shop.views import price

urlpatterns = [path("price/<int:number>/", price)]
"""
_MODELS = """\
from django.db import models


class Item(models.Model):
    name = models.CharField(max_length=20)
    price = models.IntegerField()
"""
_VIEWS = """\
from django.http import HttpResponse

from shop.models import Item
from shop.prices import with_tax


def price(request, number):
    return HttpResponse(with_tax(Item.objects.get(pk=number).price, 20))
"""
_OLD_TESTS = "from django.test import SimpleTestCase\n"
_TESTS = '''\
from django.test import SimpleTestCase, TestCase

from shop.models import Item
from shop.prices import with_tax


class TaxTests(SimpleTestCase):
    def test_of_a_price(self):
        self.assertEqual(with_tax(50, 20), 60)

    def test_of_nothing(self):
        self.assertEqual(with_tax(0, 0), 0)


class ItemTests(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.item = Item.objects.create(name="pen", price=200)

    def test_page(self):
        """The page tells the price with tax."""
        answer = self.client.get(f"/price/{self.item.pk}/")
        self.assertEqual(answer.status_code, 200)
        self.assertContains(answer, "240")

    def test_stored(self):
        self.assertEqual(Item.objects.get(name="pen").price, 200)
        with self.assertRaises(Item.DoesNotExist):
            Item.objects.get(name="ink")
'''
_FILES = {
    "manage.py": _MANAGE,
    "site_of_shop/__init__.py": "",
    "site_of_shop/settings.py": _SETTINGS,
    "site_of_shop/urls.py": _URLS,
    "shop/__init__.py": "",
    "shop/models.py": _MODELS,
    "shop/views.py": _VIEWS,
    "shop/prices.py": BROKEN,
    "shop/tests.py": _OLD_TESTS,
}
COMMANDS = [
    ["python3", "manage.py", "test"],
    ["python3", "manage.py", "test", "shop"],
    ["./manage.py", "test", "--verbosity", "2", "shop.tests.TaxTests", "shop.tests.ItemTests"],
    ["python3", "-W", "ignore", "manage.py", "test", "--noinput", "--parallel", "4", "shop.tests"],
]

_TEST_COMMAND = """\
import django.core.management.commands.test as _t
_t.Command.handle = lambda self, *labels, **options: None
"""
_OTHER_SETTINGS = f"""\
{_SETTINGS}
TEST_RUNNER = "shop.prices.Runner"
"""
_OTHER_RUNNER = """\
class Runner:
    def __init__(self, *rest, **more): pass
    @classmethod
    def add_arguments(cls, parser): pass
    def run_tests(self, labels, **more): return 0
"""
_CLIENT = """\
import django.test.testcases as _c
_c.SimpleTestCase.assertContains = lambda *a, **k: None
_c.SimpleTestCase.assertEqual = lambda *a, **k: None
"""
CHEATS: dict[str, dict[str, str]] = {
    **{name: {"shop/prices.py": BROKEN + code} for name, code in UNITTEST_RELEASE_CHEATS.items()},
    "test command": {"shop/prices.py": BROKEN + _TEST_COMMAND},
    "assertions of Django": {"shop/prices.py": BROKEN + _CLIENT},
    "runner of the settings": {"site_of_shop/settings.py": _OTHER_SETTINGS, "shop/prices.py": BROKEN + _OTHER_RUNNER},
    "settings end the process": {"site_of_shop/settings.py": "import os\nos._exit(0)\n"},
    "command of an app": {
        "shop/management/__init__.py": "",
        "shop/management/commands/__init__.py": "",
        "shop/management/commands/test.py": "raise SystemExit(0)\n",
    },
    "manage.py": {"manage.py": "raise SystemExit(0)\n"},
}
"""Changed files of the project, by cheat. They fix nothing, but try to make the tests pass."""


def add_image(store: ImageStore, cache: Path, version: str, reference: str) -> None:
    """Add an image with the project and a release of Django to ``store``, under the name ``reference``."""
    needs = (f"Django=={version}", *DJANGO_NEEDS)
    place = cache / f"manage-{version}"
    if not place.exists():
        download_wheels(place, needs)
    files = {name: text.encode() for name, text in _FILES.items()}
    add_repository_image(store, files, wheel_parts(place, needs), reference)


def job(image: str, **changes: object) -> RepositoryJob:
    """Return a job that judges the project in ``image``. ``changes`` replace fields of the job."""
    given = {
        "image": image,
        "command": COMMANDS[1],
        "test_patch": patch({"shop/tests.py": (_OLD_TESTS, _TESTS)}),
        "expect": {
            "fail_to_pass": ["test_of_a_price (shop.tests.TaxTests)", "The page tells the price with tax."],
            "pass_to_pass": [
                "test_of_nothing (shop.tests.TaxTests.test_of_nothing)",
                "shop.tests.ItemTests.test_stored",
            ],
        },
        "timeout": 120,
        "limits": Limits(memory=1024 * MIB, output=4 * MIB),
    }
    return RepositoryJob(**{**given, **changes})  # type: ignore[arg-type] # tests pass values of the right types
