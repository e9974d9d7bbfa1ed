"""A Gaussian squeezed into ``(-1, 1)``: what a soft actor draws its actions from.

``a = tanh(u)`` with ``u = mean + deviation * noise``, so that

    log pi(a) = sum over actions of log N(u; mean, deviation) - log(1 - a^2)

A network puts out ``[mean, log deviation]``. Needs the extra ``deep``.
"""

from __future__ import annotations

import math

import torch

LOWEST, HIGHEST = -20.0, 2.0
"""Limits of the log deviation; beyond them the network has no say."""

_LOG_2 = math.log(2.0)
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


class SquashedGaussian:
    """Actions drawn by given noise, their log probability, and both gradients in closed form.

    Parameters
    ----------
    outputs
        Of the network, ``[N, 2 A]``.
    noise
        Of a standard normal distribution, ``[N, A]``.

    Attributes
    ----------
    actions, log_probability
        ``[N, A]`` and ``[N]``.
    """

    def __init__(self, outputs: torch.Tensor, noise: torch.Tensor) -> None:
        mean, log_deviation = parameters_of(outputs)
        self._within = log_deviation == outputs[:, outputs.shape[1] // 2 :]
        self._push = log_deviation.exp() * noise
        before = mean + self._push
        self.actions = torch.tanh(before)
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which does not round to log 0.
        squeezed = 2.0 * (_LOG_2 - before - torch.nn.functional.softplus(-2.0 * before))
        drawn = -0.5 * noise.square() - log_deviation - _HALF_LOG_2_PI
        self.log_probability = (drawn - squeezed).sum(1)

    def gradient(
        self, of_actions: torch.Tensor, of_log_probability: torch.Tensor | float
    ) -> torch.Tensor:
        """Gradient of the network's outputs ``[N, 2 A]``, given those of what came of them.

        Parameters
        ----------
        of_actions
            ``[N, A]``.
        of_log_probability
            One number for all rows, or ``[N, 1]``.
        """
        # da/du = 1 - a^2, and d log pi/du = 2 a: the noise stays as it is.
        actions = self.actions
        before = of_actions * (1.0 - actions * actions) + 2.0 * of_log_probability * actions
        of_log_deviation = before * self._push - of_log_probability
        return torch.cat([before, of_log_deviation * self._within], 1)


def parameters_of(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log deviation ``[..., A]`` that a network's outputs ``[..., 2 A]`` stand for."""
    mean, log_deviation = outputs.chunk(2, dim=-1)
    return mean, log_deviation.clamp(LOWEST, HIGHEST)


def unit_information(outputs: torch.Tensor) -> torch.Tensor:
    """Numbers ``[..., 2 A]`` of unit Fisher information of the policy with these outputs.

    That of a Gaussian's mean is ``1 / deviation^2``, that of its log deviation 2; squeezing the
    actions changes neither.
    """
    mean, log_deviation = parameters_of(outputs)
    return torch.cat([mean / log_deviation.detach().exp(), math.sqrt(2.0) * log_deviation], -1)
