"""Check that the files that workloads use are those that the plan means, by their checksums."""

from __future__ import annotations

from pathlib import Path

from contract.errors import AgentError
from contract.files import sha256_of
from contract.plan import Asset, Plan
from workloads import registry


class AssetError(AgentError):
    """An asset is not the one that the plan means."""


def check(plan: Plan) -> dict[str, str]:
    """Return the SHA-256 of each asset that the plan's workloads use, by name.

    A missing asset is left out: its workload then voids only its own runs. Raises AssetError if a
    sum differs or is not available.
    """
    asset_names = {a for load in plan.workloads for a in registry.load(load.workload_name).assets}
    sums: dict[str, str] = {}
    for name in sorted(asset_names & set(plan.assets)):
        if Path(plan.assets[name].path).is_file():
            sums[name] = compared(name, plan.assets[name])
    return sums


def compared(name: str, asset: Asset) -> str:
    """Return the SHA-256 of an asset; raises AssetError if another is recorded, OSError."""
    path = Path(asset.path)
    digest = sha256_of(path)
    expected = asset.sha256 or (_listed(Path(asset.sums), path.name) if asset.sums else None)
    if expected is not None and expected != digest:
        source = "the inventory has" if asset.sha256 else f"{asset.sums} has"
        raise AssetError(
            "asset-differs", name=name, path=path, digest=digest, where=source, expected=expected
        )
    return digest


def _listed(sums: Path, name: str) -> str:
    """Return the sum of a file in what sha256sum wrote: `<sum>  <path>` a line."""
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise AssetError("sums-unread", sums=sums, reason=error.strerror) from None
    for line in lines:
        digest, _, path = line.partition(" ")
        # A star before the path says that the file was read as binary.
        if Path(path.strip().removeprefix("*")).name == name:
            return digest.lower()
    raise AssetError("asset-not-listed", sums=sums, name=name)
