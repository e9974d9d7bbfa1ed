"""Colored noise: random sequences whose power falls with frequency as 1 / f^beta.

Neighbouring actions of a plan drawn from it resemble each other (beta 2 is a random walk), so
that candidates go somewhere instead of trembling around the mean.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def colored_noise(
    generator: np.random.Generator, shape: tuple[int, ...], beta: float
) -> npt.NDArray[np.float32]:
    """Draw Gaussian sequences along the last axis with power spectrum 1 / f^beta.

    Random Fourier coefficients are weighted by f^(-beta/2) and transformed back. The constant
    component gets the weight of the lowest frequency, so sequences have offsets too. Every
    single value has mean 0 and variance 1, whatever `beta` and the length.

    Parameters
    ----------
    generator
        Source of randomness; as many numbers are drawn for any `beta`.
    shape
        Shape of the result; the last axis is time.
    beta
        Exponent of the spectrum, at least 0: 0 is white noise, 1 pink, 2 red.
    """
    length = shape[-1]
    # Frequencies in units of the lowest one: weights are at most 1 and cannot overflow.
    weights = np.maximum(np.fft.rfftfreq(length) * length, 1.0) ** (-beta / 2.0)
    # The constant component, and at even lengths the highest one, are real (the inverse
    # transform ignores an imaginary part); all others are complex, two normal numbers, and
    # stand for a pair of conjugates.
    paired = np.ones(len(weights), dtype=bool)
    paired[0] = False
    if length % 2 == 0:
        paired[-1] = False
    variance = np.sum(weights**2 * np.where(paired, 2.0, 1.0)) / length
    weights = np.where(paired, weights / math.sqrt(2.0), weights) / math.sqrt(variance)

    parts = generator.standard_normal((*shape[:-1], len(weights), 2), dtype=np.float32)
    spectrum = parts.view(np.complex64)[..., 0]
    spectrum *= weights.astype(np.float32)
    noise = np.fft.irfft(spectrum, n=length, axis=-1, norm="ortho")
    return noise.astype(np.float32, copy=False)
