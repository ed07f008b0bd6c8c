"""From settings to the strategies that decode by them."""

from __future__ import annotations

from specmt.decoding.loops import Greedy, Plan, Speculative
from specmt.engines.base import AnyEngine
from specmt.settings import DecodingSettings


def plan_of(settings: DecodingSettings, engine: AnyEngine, reproducible: bool) -> Plan:
    """How requests are decoded.

    Args:
        reproducible: whether any of them may be. In an engine whose rows are exact, all of `ar` and `spec` is.
    """
    group, in_flight = settings.replay_group, settings.in_flight
    if settings.strategy != "spec":
        if settings.strategy != "replay" and not (reproducible and not engine.row_exact):
            return Plan(Greedy(settings.scored), None, group, in_flight)
        from specmt.decoding.replay import Replay

        return Plan(Replay(settings.replay_window, group, settings.trace), None, group, in_flight)
    most_rows = settings.speculated_rows if settings.beta == 1 else None
    speculative = Speculative(
        settings.draft_length, settings.beta, settings.tau, settings.trace, most_rows, settings.scored
    )
    if not reproducible or engine.row_exact:
        return Plan(speculative, None, group, in_flight)
    from specmt.decoding.replay import FixedSpeculative

    return Plan(speculative, FixedSpeculative(speculative, group), group, in_flight)
