"""The mechanisms of `federation.privacy` by name: each is planned here, and released at the party by its own stage."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.gaussian import GaussianPlan
from colonnade.common.privacy.rows import RowPlan

PLANS: Mapping[str, type[PrivacyPlan]] = {"gaussian": GaussianPlan, "adaptive": RowPlan, "discrete": DiscretePlan}
