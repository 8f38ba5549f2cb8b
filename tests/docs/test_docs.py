"""Every command and code block of the README and of docs/ runs, in a fresh folder with the examples beside it.

Blocks marked `sh` run line by line, `python` page by page in one namespace; `toml` is parsed, and written to a file if
its first line names one. Lines that set the project itself up (make, pip, git) are left to CI, which begins with them.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET_UP = ("make ", "pip ", "git ", "cd ", "#")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_pages_blocks_run(page, folder):
    namespace = {"__name__": "page"}
    for language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
        elif language == "toml":
            tomllib.loads(block)
            if name := re.match(r"# (\S+\.toml)\n", block):
                (folder / name[1]).write_text(block)
        elif language == "sh":
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith(SET_UP):
                    result = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, check=False)
                    assert result.returncode == 0, f"{line}\n{result.stderr}"


QUOTED = re.compile(r"^```sh\n([^`]*?)^```\n\n((?:    .*\n)+)", re.MULTILINE)


def test_what_the_readme_quotes_is_what_the_commands_above_it_print(folder):
    found = QUOTED.findall((ROOT / "README.md").read_text())
    assert found
    for commands, quoted in found:
        result = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, check=True)
        assert " ".join(quoted.split()) in " ".join(result.stdout.split())


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_pages_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"quickstart", "test", "test-all", "check", "bench-NAME"} <= {line.split()[0] for line in listed.splitlines()}
