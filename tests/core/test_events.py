"""The event log: numbered, one writer, torn only at its end, never half written."""

import errno
import multiprocessing
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.core.clock import ManualClock
from scalerl.core.errors import CorruptLogError, DataError, OccupiedError, ScalerlError
from scalerl.core.events import LogReader
from scalerl.core.log_writer import LogWriter


class Note(msgspec.Struct, frozen=True, tag_field="kind", tag="note"):
    text: str


def written(path, texts, clock=None):
    with LogWriter(path, Note, clock=clock or ManualClock()) as log:
        for text in texts:
            log.append(Note(text))


def read(path, start=0):
    reader = LogReader(path, Note, start=start)
    return [entry.event.text for entry in reader], reader.torn_bytes


@given(st.lists(st.text(), max_size=8))
@settings(max_examples=50)
def test_what_was_appended_is_read_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    written(path, texts)
    assert read(path) == (texts, 0)


def test_entries_are_numbered_and_stamped_across_writers(tmp_path):
    path, clock = tmp_path / "events.jsonl", ManualClock(100.0)
    written(path, ["a"], clock)
    clock.advance(5.0)
    written(path, ["b"], clock)
    assert [(entry.seq, entry.time_s) for entry in LogReader(path, Note)] == [(0, 100.0), (1, 105.0)]
    assert read(path, start=1) == (["b"], 0)


@pytest.mark.parametrize("length", range(1, 52))
def test_a_torn_last_line_is_cut_and_reported_wherever_it_tore(tmp_path, length):
    path = tmp_path / "events.jsonl"
    written(path, ["first", "second"])
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    assert length < len(last)
    path.write_bytes(whole[: len(whole) - len(last)] + last[:length])
    assert read(path) == (["first"], length)
    with LogWriter(path, Note, clock=ManualClock()) as log:
        assert (log.cut_bytes, log.next_seq) == (length, 1)
        log.append(Note("again"))
    assert read(path) == (["first", "again"], 0)


@pytest.mark.parametrize("tail", [b"\x00" * 100, b"\x00" * 40 + b"\n", b"\xff\xfe\n", b"\n"])
def test_a_last_line_of_rubbish_is_cut_too(tmp_path, tail):
    path = tmp_path / "events.jsonl"
    written(path, ["first"])
    path.write_bytes(path.read_bytes() + tail)
    assert read(path) == (["first"], len(tail))
    with LogWriter(path, Note, clock=ManualClock()) as log:
        assert (log.cut_bytes, log.next_seq) == (len(tail), 1)


def test_a_log_of_nothing_but_a_torn_line_begins_anew(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"seq": 0, "ti')
    with LogWriter(path, Note, clock=ManualClock()) as log:
        assert (log.cut_bytes, log.next_seq) == (14, 0)


def test_damage_before_the_end_stops_every_reader(tmp_path):
    path = tmp_path / "events.jsonl"
    written(path, ["a", "b", "c"])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with pytest.raises(CorruptLogError, match="line 2: the line is damaged"):
        read(path)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(CorruptLogError, match="event 1 is missing: event 2 stands in its place"):
        read(path)


def test_two_damaged_lines_at_the_end_are_no_tear(tmp_path):
    path = tmp_path / "events.jsonl"
    written(path, ["a"])
    path.write_bytes(path.read_bytes() + b"x\ny\n")
    with pytest.raises(CorruptLogError, match="its last line is damaged"):
        LogWriter(path, Note, clock=ManualClock())
    assert path.read_bytes().endswith(b"x\ny\n")


def test_a_whole_line_of_a_newer_version_is_never_cut(tmp_path):
    path = tmp_path / "events.jsonl"
    written(path, ["a"])
    whole = path.read_bytes() + b'{"seq":1,"time_s":0.0,"event":{"kind":"pushed"}}\n'
    path.write_bytes(whole)
    for use in (lambda: LogWriter(path, Note, clock=ManualClock()), lambda: read(path)):
        with pytest.raises(CorruptLogError, match="of another version"):
            use()
    assert path.read_bytes() == whole


def test_a_reader_of_a_log_that_is_being_written_stops_at_the_half_line(tmp_path):
    path = tmp_path / "events.jsonl"
    written(path, ["a", "b", "c"])
    first, second, third = path.read_bytes().splitlines(keepends=True)
    # What a file object yields when the rest of a line arrives between two reads.
    reader = LogReader(path, Note)
    assert [entry.event.text for entry in reader._entries(iter([first, second[:9], second[9:], third]))] == ["a"]


class Measured(msgspec.Struct, frozen=True, tag_field="kind", tag="measured"):
    loss: float


def test_an_event_that_could_not_be_read_back_is_refused_and_the_log_stays_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    with LogWriter(path, Measured, clock=ManualClock()) as log:
        log.append(Measured(0.5))
        with pytest.raises(ScalerlError, match=r"event 1 could not be read back.*look for NaN"):
            log.append(Measured(float("nan")))
        log.append(Measured(0.25))
    assert [entry.event.loss for entry in LogReader(path, Measured)] == [0.5, 0.25]


def test_a_log_that_cannot_be_opened_is_one_sentence(tmp_path):
    with pytest.raises(ScalerlError, match=r"the event log cannot be opened .Is a directory"):
        LogWriter(tmp_path, Note, clock=ManualClock())


def _append_from_another_process(path, queue):
    try:
        written(path, ["mine"])
        queue.put("written")
    except OccupiedError as error:
        queue.put(str(error))


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "events.jsonl"
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with LogWriter(path, Note, clock=ManualClock()) as log:
        log.append(Note("ours"))
        process = context.Process(target=_append_from_another_process, args=(path, queue))
        process.start()
        assert "another process writes this log" in queue.get(timeout=60)
        process.join()
    assert read(path) == (["ours"], 0)


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    log = LogWriter(path, Note, clock=ManualClock())
    log.append(Note("first"))
    real_write, calls = os.write, []

    def failing_write(descriptor, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real_write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", failing_write)
    with pytest.raises(ScalerlError, match=r"event 1 cannot be written .No space left.*free disk space"):
        log.append(Note("second"))
    monkeypatch.undo()
    assert read(path) == (["first"], 0)
    log.append(Note("third"))
    log.close()
    assert read(path) == (["first", "third"], 0)


def test_a_disk_that_is_found_full_when_the_log_is_synced_is_one_sentence(tmp_path, monkeypatch):
    log = LogWriter(tmp_path / "events.jsonl", Note, clock=ManualClock())
    log.append(Note("first"))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScalerlError, match=r"cannot be written .No space left.*free disk space"):
        log.close()
    monkeypatch.undo()
    LogWriter(tmp_path / "events.jsonl", Note, clock=ManualClock()).close()


def test_a_missing_log_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read .No such file"):
        read(tmp_path / "none.jsonl")
