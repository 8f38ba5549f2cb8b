"""What every importer keeps: it knows its own example, refuses what is none in one sentence, and never answers rubbish."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from scalerl.core.errors import ScalerlError
from scalerl.importers import Importer, Sniff, list_columns, read_curves
from scalerl.records.curve import Curve

IMPORTERS = [name for name in Importer.family.names() if Importer.family.get(name).example]
NUM_GARBLED = 200


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The importer's example: its one file, or the folder of its files."""
    importer = Importer.family.get(request.getfixturevalue("name"))
    for file, content in importer.example.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    return tmp_path / next(iter(importer.example)) if len(importer.example) == 1 else tmp_path


def is_sound(curve: Curve) -> bool:
    """Whether a curve holds what `Curve.of` promises."""
    low, high = curve.bounds
    return bool(np.isfinite(curve.compute).all() and (curve.reward >= low).all() and (curve.reward <= high).all())


def points(curves: list[Curve]) -> set[tuple[float, float]]:
    """Every point of every curve."""
    return {point for curve in curves for point in zip(curve.compute.tolist(), curve.reward.tolist(), strict=True)}


def largest_file(log: Path) -> Path:
    """The file that holds most of a log."""
    return log if log.is_file() else max((file for file in log.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("name", IMPORTERS)
def test_its_example_is_read_by_nobody_else(name: str, log: Path) -> None:
    """It is the surest of its own example, and makes curves of it."""
    head = log.read_bytes() if log.is_file() else b""
    sure = {other: Importer.family.get(other)().sniff(log, head) for other in IMPORTERS}
    assert sure[name] is not Sniff.NO
    assert [other for other in IMPORTERS if sure[other] == max(sure.values())] == [name]
    curves = read_curves(log)
    assert curves
    assert all(len(curve) >= 3 and is_sound(curve) for curve in curves)
    assert list_columns(log).columns


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_log_cut_anywhere_gives_fewer_points_or_a_sentence(name: str, log: Path) -> None:
    """A killed run, a full disk: what is left is read, and a number that may have been cut in its middle is told."""
    whole = points(read_curves(log))
    path = largest_file(log)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        try:
            curves = read_curves(log)
        except ScalerlError as error:
            assert "\n" not in str(error)
        else:
            told = any("cut short" in note for curve in curves for note in curve.notes)
            assert len(points(curves) - whole) <= told


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_garbled_log_gives_sound_curves_or_a_sentence(name: str, log: Path) -> None:
    """Random bytes over random places; the seed is fixed, so that a failure can be seen again."""
    path = largest_file(log)
    content, draw = path.read_bytes(), random.Random(0)
    for _ in range(NUM_GARBLED):
        garbled = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            garbled[draw.randrange(len(garbled))] = draw.randrange(256)
        path.write_bytes(garbled)
        try:
            curves = read_curves(log)
        except ScalerlError as error:
            assert "\n" not in str(error)
        else:
            assert all(is_sound(curve) for curve in curves)
