"""The shipped contract suite catches engines that look right: each fault is a plug-in of somebody else's."""

import os
import subprocess
import sys

from tests.plugins import install

ENGINE = '''
"""The embedded engine with a fault."""

from dataclasses import replace

from scalerl.engines import Engine
from scalerl.engines.embedded import Embedded


class Loop:
    """A loop, spoilt."""

    def __init__(self, loop):
        self.loop = loop

    def __getattr__(self, name):
        return getattr(self.loop, name)
{method}

class Faulty(Engine):
    """Somebody else's."""

    def build(self, policy, **arguments):
        """The embedded loop."""
        settings = dict(kv=self.kv, slots=self.slots, temperature=self.temperature) | {settings}
        return Loop(Embedded(**settings).build(policy, **arguments))
'''
ONE_VERSION = """
    def step(self):
        return [self.forget(group) for group in self.loop.step()]

    def forget(self, group):
        def as_if(one):
            return replace(one, version_runs=((one.last_version, len(one.token_ids)),))

        return replace(group, completions=tuple(map(as_if, group.completions)))
"""
DEAF = """
    def cancel(self, groups):
        pass
"""
HALF_WAY = """
    def take_weights(self, version, tensors, *, between):
        if not self.loop.num_in_flight:
            return self.loop.take_weights(version, tensors, between=between)
        halves = {name: 0.5 * (tensor + dict(self.loop._policy.tensors())[name]) for name, tensor in tensors.items()}
        return self.loop.take_weights(version, halves, between=between)
"""
FAULTS = {
    "keeps_anyway": ("", "dict(kv='keep')", "test_reprefill_is_exact_under_the_version_of_each_token"),
    "lukewarm": ("", "dict(temperature=1.0)", "test_log_probs_are_those_of_a_full_forward_pass_at_the_temperature"),
    "one_version": (ONE_VERSION, "{}", "test_reprefill_is_exact_under_the_version_of_each_token"),
    "half_way": (HALF_WAY, "{}", "test_keep_goes_on_with_the_keys_of_older_versions"),
    "deaf": (DEAF, "{}", "test_cancelled_groups_are_forgotten_and_the_others_go_on"),
}


def test_a_faulty_engine_fails_the_test_of_its_fault(tmp_path, monkeypatch):
    files = {f"engines/{name}.py": ENGINE.format(method=method, settings=settings) for name, (method, settings, _) in FAULTS.items()}
    install(tmp_path, "guest", files=files, entry_points={"scalerl.engines": "guest.engines"}, monkeypatch=monkeypatch)
    chosen = " or ".join(f"({name} and {test})" for name, (_, _, test) in FAULTS.items())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "scalerl.testing.test_engines", "-k", chosen]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    for name, (_, _, test) in FAULTS.items():
        assert any(test in line and name in line for line in failed), f"{name} is not caught\n{result.stdout}"
