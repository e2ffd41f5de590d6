"""Batches of an encoder on its device."""

import numpy as np
import torch

from virnucpro.encoders.encoder import CPU_STEP, TorchEncoder

CPU = torch.device("cpu")


def test_batches_on_a_cpu_have_a_multiple_of_the_step_as_rows():
    rows = []
    encoder = TorchEncoder(
        "x", 1, "protein", list, lambda packed: rows.append(len(packed.tokens)), CPU
    )
    for n in (1, CPU_STEP, CPU_STEP + 1, 5 * CPU_STEP - 1):
        encoder.encode(encoder.collate([np.zeros(n, np.int64)]))
    assert rows == [CPU_STEP, CPU_STEP, 2 * CPU_STEP, 5 * CPU_STEP]
