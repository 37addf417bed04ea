"""docs/admin-answers.md has a line for each explanation of a difference from the newest release, and no other."""

from __future__ import annotations

from tests.admin_answers.explanations import EXPLANATIONS
from tests.admin_answers.two_clusters import RELEASES
from tests.named_tests import ROOT

PAGE = ROOT / "docs" / "admin-answers.md"


def test_the_page_lists_every_explanation_of_the_newest_release() -> None:
    _, _, table = PAGE.read_text().partition("| where | why |")
    lines = [line for line in table.splitlines() if line.startswith("|")]
    listed = [line.strip("|").split("|")[-1].strip() for line in lines[1:]]
    assert listed == list(
        dict.fromkeys(each.reason for each in EXPLANATIONS if RELEASES[0] in (each.releases or RELEASES))
    )
