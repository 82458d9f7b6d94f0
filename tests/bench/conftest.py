from __future__ import annotations

import sys

from checkout import ROOT

# At the end: scripts there have plain names.
sys.path.append(str(ROOT / "bench"))
