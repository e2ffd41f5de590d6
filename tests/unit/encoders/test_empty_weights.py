import subprocess
import sys

import pytest
import torch
from torch import nn

from virnucpro.encoders.weights.fill import init_empty_weights


def test_an_empty_model_has_shapes_and_no_numbers():
    with init_empty_weights():
        module = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3), nn.LayerNorm(3))
        nn.init.normal_(module[0].weight)
    assert {values.device.type for values in module.parameters()} == {"meta"}
    assert [tuple(values.shape) for values in module.parameters()] == [
        (7, 4),
        (3, 4),
        (3,),
        (3,),
        (3,),
    ]
    assert torch.empty(1).device.type == "cpu"


@pytest.mark.slow
def test_loading_a_bundle_does_not_import_the_compiler_of_torch():
    program = (
        "import sys\n"
        "from virnucpro.bundles.bundle import open_bundle\n"
        "from virnucpro.classifier.head import load_head\n"
        "from virnucpro.encoders.registry import load_encoder\n"
        "bundle = open_bundle('mini-deep')\n"
        "encoders = [load_encoder(spec) for spec in bundle.encoders]\n"
        "load_head(bundle.head)\n"
        "print(sorted({'torch._dynamo', 'sympy', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
