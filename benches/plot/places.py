"""Where benches leave what they measured, and where plots and tables go."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "target"
PEERS = ROOT / "benches/peers"
PEERS_TARGET = PEERS / "target"
# What the benches without criterion print.
PRINTED = TARGET / "bench"
PAGE = ROOT / "docs/benchmarks.md"
PLOTS = ROOT / "docs/plots"
