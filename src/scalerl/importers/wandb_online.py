"""A run on a Weights & Biases server: `wandb://ENTITY/PROJECT/RUN`, needs `pip install 'scalerl[wandb]'`.

All rows are scanned, without naming keys: `history()` is a random sample, and naming keys drops the rows that lack one.
The package takes its credentials and its server from its own environment variables. Tested against a stand-in for
`wandb.Api`, never against a server.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path

from scalerl.core.errors import DataError, UsageError
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._json import flat
from scalerl.importers._runs import RUN

_SCHEME = "wandb:"
_ADDRESS = re.compile(r"wandb:/{1,2}(?P<entity>[^/]+)/(?P<project>[^/]+)/(?P<run>[^/]+)/?")
"""A path has lost one of the two slashes."""


class WandbOnline(Importer):
    """One run on the server."""

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """By the scheme of the address."""
        return Sniff.CERTAIN if not head and str(path).startswith(_SCHEME) else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every row that the run logged.

        Raises:
            UsageError: the address does not have its form, or the package is not installed.
            DataError: the server does not give the run.
        """
        address = _ADDRESS.fullmatch(str(path))
        if address is None:
            raise UsageError("this is no address of a run", where=str(path), remedy="write wandb://ENTITY/PROJECT/RUN")
        run_path = "/".join(address.groups())
        where = f"{_SCHEME}//{run_path}"
        try:
            import wandb
        except ModuleNotFoundError:
            raise UsageError(
                "reading from a Weights & Biases server needs the package wandb, which is not installed",
                where=where,
                remedy="install it with: pip install 'scalerl[wandb]', or give the .wandb file of the run",
            ) from None
        table = TableBuilder({*labels, RUN})
        try:
            run = wandb.Api().run(run_path)
            for row in run.scan_history():
                table.add([*flat(row), (RUN, run.name)])
        except (wandb.Error, ValueError) as error:  # a run that is not there is a ValueError in some versions
            reason = " ".join(str(error).split())
            raise DataError(f"the server does not give this run ({reason})", where=where, remedy="check it, and wandb login") from None
        return table.build(by=(RUN,))
