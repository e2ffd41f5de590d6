"""From one vector a token to one vector a sequence."""

import torch

__all__ = ["masked_mean", "positions_below"]


def positions_below(lengths: torch.Tensor, width: int) -> torch.Tensor:
    """Mark the first ``lengths[i]`` of `width` positions in row i: (n, width) bool."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def masked_mean(hidden: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Take the mean over the kept positions, summed in fp32 whatever the type of `hidden`.

    What stands at the other positions has no influence, not even when it is not a number.

    Parameters
    ----------
    hidden
        (n, width, dim) floating point.
    keep
        (n, width) bool, with at least one position a row.

    Returns
    -------
    (n, dim) float32
    """
    total = hidden.float().masked_fill(~keep[..., None], 0.0).sum(dim=1)
    return total / keep.sum(dim=1, keepdim=True)
