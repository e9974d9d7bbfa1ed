from __future__ import annotations

import numpy as np
import pytest

from everlearn.planning.noise import colored_noise


def slope(noise: np.ndarray) -> float:
    """Exponent of the spectrum: minus the slope of log power over log frequency."""
    power = np.mean(np.abs(np.fft.rfft(noise, axis=-1)) ** 2, axis=0)
    frequency = np.fft.rfftfreq(noise.shape[-1])
    inner = slice(1, -1 if noise.shape[-1] % 2 == 0 else None)
    return -np.polyfit(np.log(frequency[inner]), np.log(power[inner]), 1)[0]


@pytest.mark.parametrize("length", [15, 64, 1024])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 3.0])
def test_slope_of_the_spectrum(length: int, beta: float) -> None:
    noise = colored_noise(np.random.default_rng(1), (4000, length), beta)
    assert slope(noise) == pytest.approx(beta, rel=0.1)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 101])
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0, 4.0])
def test_every_value_has_mean_zero_and_unit_variance(length: int, beta: float) -> None:
    noise = colored_noise(np.random.default_rng(2), (40_000, length), beta)
    assert noise.dtype == np.float32
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(noise.var(axis=0), 1.0, rtol=0.05)


def test_beta_zero_is_white() -> None:
    noise = colored_noise(np.random.default_rng(3), (50_000, 15), 0.0)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(15), atol=0.03)


def test_neighbours_resemble_each_other_more_with_beta() -> None:
    correlations = []
    for beta in (0.0, 1.0, 2.0, 4.0):
        noise = colored_noise(np.random.default_rng(4), (20_000, 15), beta)
        correlations.append(np.mean(noise[:, 6] * noise[:, 7]))
    assert correlations == sorted(correlations)
    assert correlations[2] > 0.7


def test_rows_are_independent_and_seeded() -> None:
    first = colored_noise(np.random.default_rng(5), (2000, 4, 15), 2.0)
    again = colored_noise(np.random.default_rng(5), (2000, 4, 15), 2.0)
    np.testing.assert_array_equal(first, again)
    across = np.cov(first[:, :, 7].T)
    np.testing.assert_allclose(across, np.eye(4), atol=0.1)


def test_a_huge_beta_does_not_overflow() -> None:
    noise = colored_noise(np.random.default_rng(6), (10, 1000), 500.0)
    assert np.all(np.isfinite(noise))
