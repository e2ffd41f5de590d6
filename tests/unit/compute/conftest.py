"""What several tests of units share."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def threads():
    """The number of threads of torch, which a test's task may change, is that of before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
