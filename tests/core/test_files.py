"""Atomic writes: all or nothing."""

import errno
import os

import pytest

from scalerl.core.errors import ScalerlError
from scalerl.core.files import write_atomically


def test_content_replaces_what_was_there(tmp_path):
    path = tmp_path / "report.html"
    write_atomically(path, "old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_atomically(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScalerlError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(ScalerlError, match=r"cannot be written .No such file.*choose a folder that exists"):
        write_atomically(tmp_path / "none" / "report.html", "text")
