"""What several tests of units share."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Let torch use one thread; a second one spends several times the CPU on such small batches.

    A test's task may change the number: it is restored afterwards.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
