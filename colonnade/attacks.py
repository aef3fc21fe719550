"""The name that the attacks had until 0.2; it goes in 0.4."""

import sys
import warnings

from colonnade.laboratory import load

warnings.warn("colonnade.attacks is colonnade.attack, of colonnade-lab", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = load("attack", "colonnade.attacks")
