"""Histograms: quantiles of known values, and a size that stays."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from pipelines.monitor.histogram import Histogram
from pipelines.monitor.reports import LatencyFigures


class TestHistogram:
    @pytest.mark.parametrize(("q", "wanted"), [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0), (0.001, 0.001)])
    def test_quantiles_of_one_to_a_thousand_ms(self, q: float, wanted: float) -> None:
        histogram = Histogram()
        values = [k / 1000 for k in range(1, 1001)]
        random.Random(1).shuffle(values)
        for value in values:
            histogram.add(value)
        found = histogram.quantile(q)
        assert found is not None
        assert abs(found - wanted) < 1e-3
        assert found == pytest.approx(wanted, rel=6e-4)

    def test_in_milliseconds(self) -> None:
        histogram = Histogram()
        for k in range(1, 1001):
            histogram.add(k / 1000)
        figures = histogram.figures()
        assert figures.max == 1000
        assert figures.count == 1000
        assert figures.p50 == pytest.approx(500, abs=1)
        assert figures.p95 == pytest.approx(950, abs=1)
        assert figures.p99 == pytest.approx(990, abs=1)

    def test_without_values(self) -> None:
        assert Histogram().figures() == LatencyFigures(None, None, None, None, 0)

    @pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e-6, 0.04, 3600.0, 1e6])
    def test_one_value(self, value: float) -> None:
        histogram = Histogram()
        histogram.add(value)
        for q in (0.01, 0.5, 0.99, 1):
            found = histogram.quantile(q)
            assert found is not None
            assert found <= max(value, 0)
            assert found == pytest.approx(max(value, 0), rel=6e-4, abs=1.1e-6)

    def test_no_quantile_is_above_the_maximum(self) -> None:
        rng = random.Random(3)
        histogram = Histogram()
        for _ in range(500):
            histogram.add(rng.expovariate(50))
        quantiles = [histogram.quantile(q / 100) for q in range(1, 101)]
        assert quantiles == sorted(quantiles)  # type: ignore[type-var]
        assert quantiles[-1] <= histogram.max_s  # type: ignore[operator]

    def test_merging_is_adding_all(self) -> None:
        one, other, both = Histogram(), Histogram(), Histogram()
        for k in range(1, 301):
            (one if k % 3 else other).add(k / 1000)
            both.add(k / 1000)
        one.merge(other)
        assert one.figures() == both.figures()

    def test_memory_does_not_grow_with_values(self) -> None:
        rng = random.Random(5)
        histogram = Histogram()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(50_000):
                histogram.add(rng.uniform(0.001, 10))
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 10_000
