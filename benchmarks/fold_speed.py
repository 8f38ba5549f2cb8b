"""How fast and at what memory an event log folds into metrics, ledger and curve.

    python benchmarks/fold_speed.py [NUM_GROUPS]

Writes a synthetic log of a million groups (8 completions each), folds it once and prints, as its last line,
{groups, events, log_mb, fold_s, fold_cpu_s, peak_growth_mb, ratio_vs_json_loads}: seconds of the three folds, the growth
of the process's peak memory while folding, and the time relative to merely parsing the same lines with json.loads.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from scalerl.accounting.curves import CurveFold
from scalerl.accounting.ledger import LedgerFold
from scalerl.accounting.metrics import MetricsFold
from scalerl.core.events import LogReader
from scalerl.records.events import Event
from scalerl.testing.synthetic import write_log


def peak_mb() -> float:
    """Largest memory of this program so far; `ru_maxrss` would begin with that of the process it was started by."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")) / 1024.0


def main() -> None:
    """Write, fold, parse, print."""
    num_groups = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        num_events = write_log(path, num_groups=num_groups)
        before_mb, started_s, started_cpu_s = peak_mb(), time.perf_counter(), time.process_time()
        ledger, metrics, curve = LedgerFold(), MetricsFold(), CurveFold()
        for entry in LogReader(path, Event):
            ledger.update(entry)
            metrics.update(entry)
            curve.update(entry)
        fold_s, fold_cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
        growth_mb = peak_mb() - before_mb
        started_cpu_s = time.process_time()
        with path.open("rb") as lines:
            for line in lines:
                json.loads(line)
        parse_cpu_s = time.process_time() - started_cpu_s
        figures = {
            "groups": num_groups,
            "events": num_events,
            "log_mb": round(path.stat().st_size / 1e6, 1),
            "fold_s": round(fold_s, 2),
            "fold_cpu_s": round(fold_cpu_s, 2),
            "peak_growth_mb": round(growth_mb, 1),
            "ratio_vs_json_loads": round(fold_cpu_s / parse_cpu_s, 2),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
