"""One look of the doctor at a resolved target, in a process of its own: diagnoses as JSON.

    python -m validation.first_use.one TARGET.json OUT

So that it can be started in a mount namespace in which the controller's own files are others.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from controller import doctor

if __name__ == "__main__":
    target = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = doctor.diagnose(doctor.examine(target, Path(sys.argv[2])))
    print(json.dumps([asdict(one) for one in found]))
