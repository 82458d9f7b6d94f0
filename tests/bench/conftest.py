from __future__ import annotations

import sys
from pathlib import Path

# At the end: scripts there have plain names.
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
