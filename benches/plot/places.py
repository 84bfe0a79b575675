"""Paths of the results, the plots and the page."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "target"
PEERS = ROOT / "benches/peers"
PEERS_TARGET = PEERS / "target"
# The output of the bench `figures`, and of the peers' waits.
PRINTED = TARGET / "bench"
PAGE = ROOT / "docs/benchmarks.md"
PLOTS = ROOT / "docs/plots"
