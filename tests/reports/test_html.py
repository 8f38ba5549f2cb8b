"""The page: complete, offline, closed to what logs say, and written whole or not at all."""

import base64
import errno
import hashlib
import json
import os
import re
from datetime import date
from html.parser import HTMLParser

import pytest

from scalerl.core.errors import OccupiedError, ScalerlError, UsageError
from scalerl.core.units import TOKENS
from scalerl.curves.result import Status
from scalerl.reports.html import render_html, write_html

DAY = date(2026, 1, 31)
HOSTILE = """</script><script>alert(1)</script><img src=x onerror="alert(2)"> & 'q' <!-- {{ 7*7 }} \u2028"""


class Page(HTMLParser):
    """Elements with their attributes, the text of scripts, and all other text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text, self._inside = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    @property
    def plots(self):
        return json.loads(self.scripts[0])


def page_of(*fits, title="Report"):
    return Page(render_html(fits, title=title, written=DAY))


def test_the_page_says_what_the_fit_says(planted):
    text = " ".join(page_of(planted.fit()).text.split())
    for part in (
        "The mean@16 climbs towards a ceiling of 0.645 (90% interval 0.632 to 0.661).",
        "Of 12 points after the window, which the fit has not seen, 12 lie inside the 90% interval",
        "The last residuals trend down",
        "column gpu_hours was chosen",
        "power law",
        "paper.csv",
        "13 of 27 points, 1500 to 50k GPU-hours",
        "written 2026-01-31 by scalerl",
        "hit",
    ):
        assert part in text


def test_the_plot_gets_the_numbers_of_the_fit(planted):
    (plot,) = page_of(planted.fit()).plots
    assert (len(plot["earlier"]["x"]), len(plot["fitted"]["x"]), len(plot["later"]["x"])) == (2, 13, 12)
    assert plot["fitted"]["y"] == pytest.approx(planted.fit().fitted.reward.tolist(), rel=1e-5)
    assert plot["law"]["high"][0] - plot["law"]["low"][0] == pytest.approx(2 * planted.HALF_WIDTH, rel=1e-3)
    assert plot["ceiling"] == {"value": 0.645, "low": 0.632, "high": 0.661}
    assert [law["name"] for law in plot["beside"]] == ["power law"]


def test_nothing_is_fetched_from_anywhere(planted):
    html = render_html([planted.fit(), planted.unbounded_fit()], title="Report", written=DAY)
    page = Page(html)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
        assert not {"src", "srcset", "data", "action", "background"} & set(attributes)
        assert not re.match(r"(?i)\s*(https?:|//|data:|javascript:)", attributes.get("href") or "")
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    assert not re.search(r"url\(|@import|@font-face", style)
    own_script = page.scripts[2]
    assert "http" not in own_script
    assert "showSendToCloud: false" in own_script, "plotly.js offers an upload of the chart by default"


def test_the_policy_admits_these_two_scripts_and_no_connection(planted):
    page = page_of(planted.fit())
    policy = next(attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    assert len(page.scripts) == 3
    for script in page.scripts[1:]:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_hostile_logs_stay_text(planted):
    page = page_of(planted.hostile_fit(HOSTILE), planted.fit(), title=HOSTILE)
    assert len(page.scripts) == 3
    assert not [attributes for tag, attributes in page.elements if tag == "img" or any(name.startswith("on") for name in attributes)]
    assert page.text.count("<img src=x") >= 5
    assert "{{ 7*7 }}" in page.text
    assert page.plots[0]["name"] == HOSTILE.replace("\u2028", "?")


def test_plotly_gets_no_markup_from_a_log(planted):
    """Plotly reads tags in names and titles: each of them goes through `plain` in plots.js."""
    script = page_of(planted.fit()).scripts[2]
    for field in ("data.metric", "data.compute", "other.name", "data.law_name", "short(data.name)"):
        assert f"plain({field})" in script


def test_infinite_bounds_reach_no_script(planted):
    page = page_of(planted.unbounded_fit(), planted.unanswered_fit(Status.TOO_FEW_POINTS))
    assert not re.search(r"NaN|Infinity", page.scripts[0])
    assert page.plots[0]["ceiling"] is False
    assert page.plots[1]["law"] is None


def test_several_curves_share_a_plot_and_a_table(planted):
    page = page_of(planted.fit("one"), planted.unbounded_fit("two"))
    kinds = [attributes["data-plot"] for _, attributes in page.elements if "data-plot" in attributes]
    assert kinds == ["comparison", "curve", "residuals", "linear", "curve", "residuals", "linear"]
    targets = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links == ["#curve-1", "#curve-2"]
    assert {link[1:] for link in links} <= targets


def test_curves_on_different_axes_share_no_plot(planted):
    page = page_of(planted.fit(), planted.fit_on(TOKENS))
    assert "comparison" not in [attributes.get("data-plot") for _, attributes in page.elements]
    assert "The curves count compute in different units" in page.text


def test_every_plot_has_words_for_those_who_do_not_see_it(planted):
    page = page_of(planted.fit())
    labels = [attributes["aria-label"] for _, attributes in page.elements if "data-plot" in attributes]
    assert labels[0].startswith("mean@16 over compute (GPU-hours). The mean@16 climbs towards a ceiling of 0.645")
    assert all(labels)
    assert "The plots need JavaScript." in page.text
    assert ("html", {"lang": "en"}) in page.elements


def test_the_same_fit_gives_the_same_bytes(planted, tmp_path):
    write_html([planted.fit()], tmp_path / "a.html", title="Report", written=DAY)
    write_html([planted.fit()], tmp_path / "b.html", title="Report", written=DAY)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_an_older_report_is_replaced_and_anything_else_is_kept(planted, tmp_path):
    report, notes = tmp_path / "report.html", tmp_path / "notes.html"
    write_html([planted.fit()], report, title="Old", written=DAY)
    write_html([planted.fit()], report, title="New", written=DAY)
    assert "<title>New</title>" in report.read_text()
    notes.write_text("<h1>mine</h1>")
    with pytest.raises(
        OccupiedError, match=r"notes.html: this is no report of scalerl, so it was not overwritten; choose another file name"
    ):
        write_html([planted.fit()], notes, title="Report", written=DAY)
    assert notes.read_text() == "<h1>mine</h1>"


def test_a_folder_or_a_device_is_no_place_for_a_report(planted, tmp_path):
    folder, device = tmp_path / "folder.html", tmp_path / "device.html"
    folder.mkdir()
    device.symlink_to("/dev/null")
    for place, message in (
        (tmp_path, "there is a folder of this name; name a file in it"),
        (folder, "there is a folder of this name; name a file in it"),
        (device, "this is no report of scalerl"),
    ):
        with pytest.raises(OccupiedError, match=message):
            write_html([planted.fit()], place, title="Report", written=DAY)


@pytest.mark.parametrize("name", ["report", "report.pdf", "points.csv"])
def test_another_suffix_is_refused(planted, tmp_path, name):
    with pytest.raises(UsageError, match=r"no page is written as .*; let the file's name end in .html"):
        write_html([planted.fit()], tmp_path / name, title="Report", written=DAY)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_looked_at_is_one_sentence(planted, tmp_path):
    with pytest.raises(ScalerlError, match=r"no report can be put there \(File name too long\); choose another name"):
        write_html([planted.fit()], tmp_path / ("x" * 300 + ".html"), title="Report", written=DAY)


def test_doubts_stand_before_assumptions_and_take_the_green_away(planted):
    html = render_html([planted.doubted_fit()], title="Report", written=DAY)
    assert '<span class="badge doubtful">ceiling bounded, doubtful</span>' in html
    doubt = html.index('<ul class="warnings" aria-label="Reasons to doubt this"><li>The power law explains')
    assert doubt < html.index('<ul class="quiet" aria-label="What was assumed or left out"><li>The last residuals trend')


def test_no_name_reverses_the_reading_order(planted):
    html = render_html([planted.hostile_fit("a\u202eb\u2066c"), planted.fit()], title="t\u202e", written=DAY)
    assert not {"\u202e", "\u2066"} & set(html)
    assert "a?b?c" in html


def test_a_missing_folder_is_one_sentence(planted, tmp_path):
    with pytest.raises(ScalerlError, match=r"none/report.html: the file cannot be written \(No such file or directory\); choose a folder"):
        write_html([planted.fit()], tmp_path / "none" / "report.html", title="Report", written=DAY)


def test_a_full_disk_leaves_the_old_report_and_no_draft(planted, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_html([planted.fit()], path, title="Old", written=DAY)

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ScalerlError, match="No space left on device"):
        write_html([planted.fit()], path, title="New", written=DAY)
    assert "<title>Old</title>" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_no_fit_is_no_report(tmp_path):
    with pytest.raises(UsageError, match="there is no curve to report"):
        write_html([], tmp_path / "report.html", title="Report", written=DAY)
