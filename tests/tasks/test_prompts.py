"""The task that reads prompts from a file."""

from __future__ import annotations

import csv
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import DataError, UnknownNameError, UsageError
from scalerl.recipes import resolve
from scalerl.runs.training import train
from scalerl.tasks import Split
from scalerl.tasks.prompts import Prompts

ROWS = [{"prompt": f"What is {a} + {b}, in words?\n(one line)", "answer": str(a + b)} for a in range(5) for b in range(5)]


def write(path, rows):
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def prompts(path, **settings):
    return Prompts.model_validate({"path": str(path), "num_held_out": 5, "graded_by": "exact", **settings})


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_kind_of_file_gives_the_same_examples(tmp_path, suffix):
    task = prompts(write(tmp_path / f"data{suffix}", ROWS))
    held_out, trained = task.examples(Split.HELD_OUT), task.examples(Split.TRAIN)
    assert (len(held_out), len(trained)) == (5, 20)
    for example in (*held_out, *trained):
        row = ROWS[int(example.id.removeprefix("row-")) - 1]
        assert (example.text, example.answer) == (row["prompt"], row["answer"])
    task.check_gold_answers()


def test_the_split_goes_by_text_whatever_the_order_of_the_rows(tmp_path):
    forward, backward = (write(tmp_path / name, rows) for name, rows in (("forward.jsonl", ROWS), ("backward.jsonl", ROWS[::-1])))
    here, there = ([example.text for example in prompts(path).examples(Split.HELD_OUT)] for path in (forward, backward))
    assert here == there


def test_rows_that_are_added_push_prompts_out_of_the_held_out_set_but_mix_none_in(tmp_path):
    before = prompts(write(tmp_path / "before.jsonl", ROWS[:15])).examples(Split.HELD_OUT)
    after = prompts(write(tmp_path / "after.jsonl", ROWS)).examples(Split.HELD_OUT)
    assert {example.text for example in after} & {row["prompt"] for row in ROWS[:15]} <= {example.text for example in before}


def test_another_data_seed_holds_other_prompts_out(tmp_path):
    path = write(tmp_path / "data.jsonl", ROWS)
    here, there = ({example.text for example in prompts(path, data_seed=seed).examples(Split.HELD_OUT)} for seed in (0, 1))
    assert here != there


@given(texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=2), num_held_out=st.integers(1, 5))
def test_no_text_is_in_both_splits_or_twice_in_one(tmp_path_factory, texts, num_held_out):
    path = write(tmp_path_factory.mktemp("data") / "data.jsonl", [{"prompt": text, "answer": "1"} for text in texts])
    task = prompts(path, num_held_out=num_held_out)
    if len(set(texts)) <= num_held_out:
        with pytest.raises(DataError, match="too few"):
            task.examples(Split.TRAIN)
        return
    held_out, trained = ([example.text for example in task.examples(split)] for split in (Split.HELD_OUT, Split.TRAIN))
    assert len(held_out) == num_held_out
    assert sorted(held_out + trained) == sorted(set(texts))


def test_the_first_of_several_answers_to_a_prompt_counts(tmp_path):
    path = write(tmp_path / "data.jsonl", [*ROWS, {**ROWS[0], "answer": "another"}])
    assert "another" not in {example.answer for split in Split for example in prompts(path).examples(split)}


def test_columns_are_chosen_and_numbers_are_text(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"question": row["prompt"], "gold": float(row["answer"])} for row in ROWS])
    examples = prompts(path, prompt_column="question", answer_column="gold").examples(Split.TRAIN)
    assert {example.answer for example in examples} <= {f"{number}.0" for number in range(9)}


def lines(text):
    return lambda folder: (folder / "data.jsonl").write_text(text) and folder / "data.jsonl"


BAD_FILES = {
    "absent": (lambda folder: folder / "data.jsonl", DataError, "data.jsonl: there is no such file; check task.path"),
    "folder": (lambda folder: folder, UsageError, "data set folders and names of the hub are not read yet; give one file: .jsonl"),
    "hub name": (lambda folder: "openai/gsm8k", UsageError, "openai/gsm8k: data set folders and names of the hub are not read yet"),
    "suffix": (
        lambda folder: write_bytes(folder / "data.txt", b"x"),
        UsageError,
        "files called *.txt are not read; give one of .jsonl, .csv",
    ),
    "empty": (lambda folder: write_bytes(folder / "data.jsonl", b""), DataError, "data.jsonl: it holds no rows"),
    "header only": (lambda folder: write_bytes(folder / "data.csv", b"prompt,answer\n"), DataError, "data.csv: it holds no rows"),
    "no JSON": (lines('{"prompt": "a", "answer": "b"}\n{"prompt": \n'), DataError, "data.jsonl: line 2: it holds no JSON object"),
    "no object": (lines("[1, 2]\n"), DataError, "line 1: it holds no JSON object; write one object a line"),
    "column": (lines('{"prompts": "a", "answer": "b"}\n'), UnknownNameError, "row 1: there is no column 'prompt'; did you mean 'prompts'"),
    "no text": (lines('{"prompt": "a", "answer": null}\n'), DataError, "row 1: its answer holds no text; mend or remove the row"),
    "messages": (lines('{"prompt": [{"role": "user"}], "answer": "b"}\n'), DataError, "row 1: its prompt holds no text"),
    "white space": (lines('{"prompt": "a", "answer": " "}\n'), DataError, "row 1: its answer holds no text"),
    "not UTF-8": (lambda folder: write_bytes(folder / "data.jsonl", b"\xff\xfe"), DataError, "data.jsonl: it cannot be read ("),
    "short row": (lambda folder: write_bytes(folder / "d.csv", b"prompt,answer\na\n"), DataError, "row 1: its answer holds no text"),
    "long row": (
        lambda folder: write_bytes(folder / "d.csv", b"prompt,answer\na,b,c\n"),
        DataError,
        "row 1 has more cells than the header",
    ),
    "open quote": (lambda folder: write_bytes(folder / "d.csv", b'prompt,answer\n"a,b\n'), DataError, "d.csv: it cannot be read ("),
    "no Parquet": (lambda folder: write_bytes(folder / "d.parquet", b"PAR2"), DataError, "d.parquet: it is no Parquet file ("),
    "too few": (lambda folder: write(folder / "data.jsonl", ROWS[:5]), DataError, "its 5 different prompts are too few to hold 5 out"),
}


def write_bytes(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("make", "kind", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_what_cannot_be_read_is_one_sentence(tmp_path, make, kind, sentence):
    with pytest.raises(kind) as refused:
        prompts(make(tmp_path)).examples(Split.TRAIN)
    assert sentence in str(refused.value)


def test_a_missing_pyarrow_is_named_with_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "data.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"need the package pyarrow, .*pip install 'scalerl\[train\]'"):
        prompts(path).examples(Split.TRAIN)


def test_a_grader_that_rejects_the_gold_answers_refuses_the_run_before_anything_is_made(tmp_path):
    path = write(tmp_path / "data.jsonl", ROWS)
    settings = ["task.type=prompts", f"task.path={path}", "task.num_held_out=5"]
    with pytest.raises(DataError, match="its grader 'exact' rejects the gold answer"):
        train(resolve("scalerl", overrides=[*settings, 'task.graded_by={type = "exact", after = "="}']), tmp_path / "run")
    with pytest.raises(UsageError, match="grader 'math': it does not work yet; choose 'exact'"):
        train(resolve("scalerl", overrides=[*settings, "task.graded_by=math"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
