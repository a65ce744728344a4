"""The seed of this run: whatever a test draws, it draws from here. PENSTOCK_SEED replays a run.

It stands in the environment as soon as it is drawn, so that all processes of a run collect the same tests.
"""

import os
import random

SEED = int(os.environ.setdefault("PENSTOCK_SEED", str(random.SystemRandom().randrange(10**6))))
