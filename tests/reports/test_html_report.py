"""The HTML report: its content, its treatment of hostile records, and its limits of size, time and memory."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import time
import tracemalloc
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

import synthetic_run
from bounds import on_this_machine
from reports.hostile_records import MARK, write_hostile_run
from securebench.errors import ConfigError, StorageError
from securebench.report import plots
from securebench.report.detail import FULL, task_detail
from securebench.report.extras import require
from securebench.report.html_report import report_page, report_views, write_report
from securebench.report.pages import amount, duration, render
from securebench.results.read import read_run
from securebench.results.records.record import Output, VerificationStatus, candidate_fields
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.run_directory.files import JOURNAL

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.resources import JsonValue

STATUS = VerificationStatus
ELEMENTS = frozenset(
    {
        *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "footer", "section", "div"),
        *("h1", "h2", "h3", "h4", "p", "a", "b", "small", "span", "ol", "ul", "li", "dl", "dt", "dd", "pre", "code"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "details", "summary"),
        *("svg", "g", "path", "line", "rect", "text", "tspan"),
    }
)
ADDRESS = re.compile(r"#[\w-]+")
NAME = re.compile(r"[\w -]*")


class Outline(HTMLParser):
    """A parser that collects a page's elements, attributes and text.

    ``others`` has comments, processing instructions and unknown declarations.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.others: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and its attributes."""
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        """Note a comment."""
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        """Note a processing instruction."""
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        """Note an unknown declaration."""
        self.others.append(data)


def page_of(*directories: Path) -> str:
    """Return the report of some runs."""
    return "".join(report_page(report_views(directories)))


def plain_text(page: str) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(" ".join(Outline(page).text).split())


def test_a_report_says_what_was_run_and_how_it_went(tmp_path: Path) -> None:
    """A report shows counts, pass rate, interval, selection, failure reasons and cost, and lists failed tasks first."""
    found = [STATUS.PASSED] * 6 + [STATUS.FAILED] * 3 + [STATUS.ERROR]
    given = [synthetic_run.record(number, status) for number, status in enumerate(found)]
    head = synthetic_run.header(12, pack_tasks=164, harness={"type": "command", "name": "my agent", "env": {}})
    text = plain_text(page_of(synthetic_run.write_run(tmp_path / "run", given, head)))
    assert "my agent on made-up" in text
    assert "66.7% pass rate, 95 % interval 35.4% to 87.9%" in text  # Wilson's interval of 6 of 9
    assert "6 \u2713 passed 3 \u2717 failed 1 ! error 0 \u25cb pending 2 not run" in text
    assert "12 of 164 tasks, not the whole benchmark" in text
    assert "incomplete: 2 of 12 not run" in text
    assert "wrong_answer failed 3 engine_unavailable error, not scored 1" in text
    assert "memory limit not enforced" in text
    assert "$0.10" in text
    assert text.index("made-up/task-00006") < text.index("made-up/task-00009") < text.index("made-up/task-00000")


def test_each_task_has_its_detail(tmp_path: Path) -> None:
    """A report shows a task's candidate, output, steps, evidence, public fields and ``securebench show`` command."""
    directory = tmp_path / "run"
    steps = synthetic_run.trajectory(directory, "made-up/task-00000", {"role": "assistant", "text": "I think"})
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new <b>\n"
    fields = {
        **candidate_fields(None, None),
        "candidate_patch": patch,
        "candidate_digest": "ab" * 32,
        "candidate_redacted": True,
    }
    producer = Output(stdout="said", stderr="complained")
    given = synthetic_run.record(0, STATUS.FAILED, candidate=fields, producer=producer, provenance=steps)
    page = page_of(synthetic_run.write_run(directory, [given]))
    text = plain_text(page)
    for part in ("I think", "said", "complained", "expected another answer", "phase: verdict", "What is 0 times"):
        assert part in text
    assert '<span class="added">+new &lt;b&gt;\n</span>' in page
    assert f"securebench show {directory} made-up/task-00000" in text


def test_only_a_model_that_a_relay_saw_has_answered(tmp_path: Path) -> None:
    """A configured model that never answered is not listed with those that answered."""
    usage = {"input_tokens": 10, "relay": {"models": {"seen": 3}}}
    configured = {"agent": {"model": "configured"}}
    given = [
        synthetic_run.record(0, provenance={**configured, "usage": usage}),
        synthetic_run.record(1, STATUS.ERROR, provenance={**configured, "usage": None}),
    ]
    run = synthetic_run.write_run(tmp_path / "run", given)
    assert [record.models for record in read_run(run).records()] == [("seen",), ("configured",)]
    text = plain_text(page_of(run))
    assert "Models that answered seen (1)" in text
    assert text.count("Answered by seen") == 1
    assert "Answered by configured" not in text


def test_families_and_tags_have_plots_of_their_own(tmp_path: Path) -> None:
    """A tag with the name of a family is not drawn on the family's bar, and the captions say what is drawn."""
    family = synthetic_run.FAMILIES[0]
    given = [synthetic_run.record(number, tags=(family, "odd" if number % 2 else "even")) for number in range(4)]
    (view,) = report_views([synthetic_run.write_run(tmp_path / "run", given)])
    drawn = {figure.caption: str(figure.svg) for figure in view.figures()}
    for plot in ("Pass rate by {}, with its 95 % interval", "Outcomes by {}"):
        assert drawn[plot.format("family")].count(f">{family}<") == 1
        assert ">even<" not in drawn[plot.format("family")]
        assert all(drawn[plot.format("tag")].count(f">{name}<") == 1 for name in (family, "even", "odd"))


def test_what_was_not_reported_is_not_zero(tmp_path: Path) -> None:
    """An agent program that reports no usage has used an unknown number of tokens, not none."""
    silent = synthetic_run.record(provenance={"usage": None, "spent": None})
    text = plain_text(page_of(synthetic_run.write_run(tmp_path / "silent", [silent])))
    assert "1 0 0 0 2.5 s \u2013 \u2013 \u2013" in text  # outcomes, time, tokens in and out, cost
    text = plain_text(page_of(synthetic_run.write_run(tmp_path / "run", [synthetic_run.record()])))
    assert "1 0 0 0 2.5 s 1,000 100 $0.01" in text


def test_trials_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    """Axes of a small run have no ticks at half a trial."""
    for number in (1, 2, 3, 7):
        (view,) = report_views([synthetic_run.write_run(tmp_path / str(number), number)])
        drawn = {figure.caption: str(figure.svg) for figure in view.figures()}
        for caption in ("Outcomes by family", "Verdicts and passes over time"):
            assert not re.search(r">\d\.5</text>", drawn.get(caption, "").partition("trials")[0])
        assert not re.search(r">0\.5</text>", drawn["Outcomes by family"])


def test_short_durations_are_in_seconds(tmp_path: Path) -> None:
    """Durations below a second are in seconds, not in milliseconds with the prefix m, which looks like minutes."""
    given = [
        synthetic_run.record(number, provenance={"durations": {"total": 0.05 * (number + 1)}}) for number in range(4)
    ]
    (view,) = report_views([synthetic_run.write_run(tmp_path / "run", given)])
    (plot,) = (str(figure.svg) for figure in view.figures() if figure.caption == "Duration of trials")
    assert ">0.1<" in plot
    assert not re.search(r">\d+m<", plot)


def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    """A report of two runs compares them side by side and has one section for each run."""
    runs = [synthetic_run.write_run(tmp_path / name, number) for name, number in (("a", 4), ("b", 7))]
    page = page_of(*runs)
    assert "Side by side" in page
    assert [part for part in ('id="run-1"', 'id="run-2"', 'id="run-3"') if part in page] == [
        'id="run-1"',
        'id="run-2"',
    ]


def test_trials_of_a_task_are_told_apart_and_flaky_ones_are_listed(tmp_path: Path) -> None:
    """A task with passes and failures is flaky; each row shows its trial."""
    given = [
        synthetic_run.record(number, status, trial=trial)
        for number, trial, status in ((0, 1, STATUS.PASSED), (0, 2, STATUS.FAILED), (1, 1, STATUS.PASSED))
    ]
    text = plain_text(page_of(synthetic_run.write_run(tmp_path / "run", given, synthetic_run.header(4, trials=2))))
    assert (
        "Flaky tasks Some trials of these tasks passed and others failed. Task Passed Of made-up/task-00000 1 2" in text
    )
    assert "made-up/task-00000 trial 2" in text
    assert "75.0% pass rate" in text  # the mean of 1/2 and 1


def test_hostile_records_stay_text(tmp_path: Path) -> None:
    """No text from a record becomes an element, attribute, address or comment, and no invisible character is left."""
    page = page_of(write_hostile_run(tmp_path / "run"), synthetic_run.write_run(tmp_path / "good", 3))
    outline = Outline(page)
    assert set(outline.elements) <= ELEMENTS
    assert not outline.others
    assert MARK in page
    for tag, name, value in outline.attributes:
        assert MARK not in value + name, (tag, name, value)
        assert not name.startswith("on"), (tag, name)
        assert name not in {"style", "src", "srcset", "action", "formaction", "xlink:href"}, (tag, name)
        assert name != "href" or ADDRESS.fullmatch(value), value
        assert name not in {"id", "class", "aria-labelledby"} or NAME.fullmatch(value), value
    invisible = {char for char in page if not (char.isprintable() or char in "\n\t")}
    assert not invisible
    assert "{{ 7*7 }}" in page


def test_the_page_allows_nothing_but_its_own_style(tmp_path: Path) -> None:
    """The content security policy allows one style, by its digest, and no script. The page has only this style."""
    page = page_of(synthetic_run.write_run(tmp_path / "run", 3))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    (found,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found.replace("&#39;", "'") == policy
    assert page.index("Content-Security-Policy") < page.index("<title>") < page.index("<style>")


def test_an_output_of_many_megabytes_is_cut(tmp_path: Path) -> None:
    """A page with a huge output stays small, shows the output's end, and says how many characters are left out."""
    huge = Output(stdout='"<&' * 7_000_000 + "the end", stderr="\x1b" * 3_000_000)
    given = [synthetic_run.record(0, STATUS.FAILED, producer=huge, candidate=candidate_fields(None, None))]
    page = page_of(synthetic_run.write_run(tmp_path / "run", given))
    assert len(page) < 300_000
    assert "the end" in page
    assert "20,994,007 characters left out" in page


def test_a_long_trajectory_is_cut(tmp_path: Path) -> None:
    """A page shows only the first steps of a long trajectory, and says how many steps there are."""
    directory = tmp_path / "run"
    steps = synthetic_run.trajectory(directory, "made-up/task-00000", *range(15_000))
    page = page_of(synthetic_run.write_run(directory, [synthetic_run.record(0, STATUS.FAILED, provenance=steps)]))
    assert "Steps that the agent program reported: 40 of 15,000" in plain_text(page)
    assert len(page) < 200_000


def test_a_trajectory_with_a_million_steps_is_refused_in_words(tmp_path: Path) -> None:
    """A run with a trajectory of a million steps still has a report, which says that the trajectory was altered."""
    directory = tmp_path / "run"
    (directory / TRAJECTORIES).mkdir(parents=True)
    data = b"{}\n" * 1_000_000
    (directory / TRAJECTORIES / "made.jsonl").write_bytes(data)
    described = {"path": "trajectories/made.jsonl", "lines": 10**6, "bytes": len(data)}
    steps = {"trajectory": {**described, "sha256": hashlib.sha256(data).hexdigest()}}
    page = page_of(synthetic_run.write_run(directory, [synthetic_run.record(0, STATUS.FAILED, provenance=steps)]))
    assert "the trajectory was altered" in page


def test_failed_tasks_keep_their_detail_when_there_is_not_enough_room(tmp_path: Path) -> None:
    """If not all details fit, those of some passed tasks are left out. The page says of how many."""
    big = Output(stderr="x" * 5_900)
    found = [STATUS.PASSED] * 700 + [STATUS.FAILED] * 400
    given = [synthetic_run.record(number, status, producer=big) for number, status in enumerate(found)]
    (view,) = report_views([synthetic_run.write_run(tmp_path / "run", given)])
    rows = dict(view.rows.by_status())
    assert all(row.detail for row in rows[STATUS.FAILED])
    left_out = sum(row.detail is None for row in rows[STATUS.PASSED])
    assert left_out == view.rows.without_detail > 0
    text = plain_text("".join(report_page([view])))
    assert f"the detail of {left_out:,} tasks is left out" in text


def test_a_page_lists_failed_tasks_before_others_when_there_are_too_many(tmp_path: Path) -> None:
    """If there are more rows than the maximum, rows of passed tasks are left out and counted."""
    from securebench.report.task_rows import TaskRows

    found = [STATUS.PASSED] * 5 + [STATUS.FAILED] * 4
    run = read_run(
        synthetic_run.write_run(tmp_path / "run", [synthetic_run.record(n, status) for n, status in enumerate(found)])
    )
    rows = TaskRows(run, with_detail=True, max_rows=6)
    for record in run.records():
        rows.add(record)
    assert {status: len(listed) for status, listed in rows.by_status()} == {STATUS.FAILED: 4, STATUS.PASSED: 2}
    assert rows.left_out == 3


def test_a_row_that_is_not_listed_is_not_counted_as_one_without_detail(tmp_path: Path) -> None:
    """If a failed task takes the row of a passed task without detail, the passed task counts only as left out."""
    from securebench.report.task_rows import TaskRows

    given = [synthetic_run.record(n, status) for n, status in enumerate([STATUS.PASSED] * 2 + [STATUS.FAILED])]
    run = read_run(synthetic_run.write_run(tmp_path / "run", given))
    rows = TaskRows(run, with_detail=True, max_rows=2, max_detail=0)
    for record in run.records():
        rows.add(record)
    assert (rows.left_out, rows.without_detail) == (1, 2)


def test_a_page_of_a_task_shows_much_more_but_not_everything(tmp_path: Path) -> None:
    """A page of a single task has limits for steps and output that are higher than those of a report."""
    steps = synthetic_run.trajectory(tmp_path / "run", "made-up/task-00000", *range(3_000))
    given = synthetic_run.record(0, producer=Output(stderr="y" * 1_000_000), provenance=steps)
    run = read_run(synthetic_run.write_run(tmp_path / "run", [given]))
    detail = task_detail(run, next(iter(run.records())), FULL)
    assert len(detail.steps) == 2_000
    assert detail.steps_left_out == 1_000
    assert max(len(box.html) for box in detail.boxes) == 400_000


def test_a_run_without_records_has_a_report(tmp_path: Path) -> None:
    """The report of a run without records says that there is no verdict yet."""
    text = plain_text(page_of(synthetic_run.write_run(tmp_path / "run", [], synthetic_run.header(3))))
    assert "no verdict yet" in text
    assert "3 not run" in text


def test_a_damaged_run_has_no_report(tmp_path: Path) -> None:
    """A damaged run raises an error. An existing report stays unchanged, and no temporary file is left."""
    directory = synthetic_run.write_run(tmp_path / "run", 3)
    output = tmp_path / "report.html"
    output.write_text("before")
    with (directory / JOURNAL).open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(ConfigError, match="records are damaged"):
        write_report([directory], output)
    assert output.read_text() == "before"
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """If a report cannot be written, the error names the file, and its hint names the option ``--output``."""
    directory = synthetic_run.write_run(tmp_path / "run", 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file/report\.html") as caught:
        write_report([directory], tmp_path / "file" / "report.html")
    assert "--output" in caught.value.hint


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a library of an extra is missing, the error names the library and the command that installs the extra."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match="this command needs vl_convert") as caught:
        require("report")
    assert caught.value.code == "extra-missing"
    assert "pip install 'securebench[report]'" in caught.value.hint


@pytest.mark.parametrize(
    "svg",
    [
        "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><a href='#'>x</a></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "<svg xmlns='http://www.w3.org/2000/svg'><path style='fill:red'/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://x.example'/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><foreignObject/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg' xmlns:x='http://www.w3.org/1999/xlink'><g x:href='#a'/></svg>",
        "<p xmlns='http://www.w3.org/1999/xhtml'/>",
    ],
)
def test_a_plot_with_more_than_shapes_is_refused(svg: str) -> None:
    """An SVG with unexpected elements or attributes is refused, so that a page need not trust the plot library."""
    with pytest.raises(ValueError, match="unexpected"):
        plots.checked_svg(svg)


def test_a_value_of_a_template_cannot_be_undefined() -> None:
    """Rendering a template without one of its values raises an error."""
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        "".join(render("message.html", title="x", is_live=False))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (61, "1 min 1 s"),
        (3599.6, "1 h 0 min"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    """A duration is shown with at most two units."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "\N{EN DASH}"), (0, "0"), (9_999, "9,999"), (12_345, "12.3 k"), (2_500_000, "2.5 M"), (3e9, "3.0 G")],
)
def test_large_numbers_have_a_unit(number: float | None, text: str) -> None:
    """A number with more than four digits is shortened and gets a unit."""
    assert amount(number) == text


@pytest.mark.alone
def test_ten_thousand_tasks_take_three_seconds(large_run: Path, tmp_path: Path) -> None:
    """A report of 10,000 tasks is written within three seconds, scaled to this machine, and has less than 30 MB."""
    seconds: list[float] = []
    limit = on_this_machine(3)
    while not seconds or (min(seconds) > limit and len(seconds) < 3):  # other programs can slow down a measurement
        start = time.monotonic()
        write_report([large_run], tmp_path / "report.html")
        seconds.append(time.monotonic() - start)
    assert min(seconds) < limit
    assert (tmp_path / "report.html").stat().st_size < 30_000_000


def test_memory_does_not_grow_with_the_size_of_records(tmp_path: Path) -> None:
    """A report keeps only the part of a record that it shows: records with 60 MB of output need less than 25 MB."""
    big = Output(stderr="x" * 200_000)
    given = (synthetic_run.record(number, STATUS.FAILED, producer=big) for number in range(300))
    directory = synthetic_run.write_run(tmp_path / "run", given)
    tracemalloc.start()
    views = report_views([directory])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert views[0].totals.total.failed == 300
    assert peak < 25_000_000


def test_the_report_does_not_depend_on_the_size_of_hostile_values(tmp_path: Path) -> None:
    """Text that grows when it is escaped counts with its escaped size, so that the page stays below its size limit."""
    nasty = Output(stderr="\U000e0001<" * 3_000)
    given = [synthetic_run.record(number, STATUS.FAILED, producer=nasty) for number in range(250)]
    write_report([synthetic_run.write_run(tmp_path / "run", given)], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 7_000_000


def test_a_step_of_any_shape_is_lines_of_paths_and_values(tmp_path: Path) -> None:
    """A step of any JSON structure is shown as lines of paths and values, because agent programs' formats differ."""
    step: JsonValue = {"role": "assistant", "content": [{"text": "hello"}, {"n": 1.5, "none": None, "yes": True}]}
    steps = synthetic_run.trajectory(tmp_path / "run", "made-up/task-00000", step, "plain", 3, [])
    run = read_run(synthetic_run.write_run(tmp_path / "run", [synthetic_run.record(0, provenance=steps)]))
    detail = task_detail(run, next(iter(run.records())), FULL)
    assert detail.steps == (
        "role: assistant\ncontent[0].text: hello\ncontent[1].n: 1.5\ncontent[1].yes: true",
        "plain",
        "3",
        "",
    )
