import dataclasses
import sys
from importlib import import_module
from pathlib import Path

import pytest
from programs import run_captured

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.registry import architectures, config_of, load_encoder, open_spec
from virnucpro.errors import BundleError


def test_the_registry_does_not_import_torch():
    program = (
        "import sys, virnucpro.encoders, virnucpro.encoders.base, virnucpro.encoders.batching\n"
        "from virnucpro.encoders.registry import architectures; print(*architectures())\n"
        "print(sorted({'torch', 'esm', 'tokenizers'} & set(sys.modules)))"
    )
    done = run_captured(sys.executable, "-c", program)
    assert done.stdout == "composition dnabert_s esm2 genes huggingface plugin\n[]\n", done.stderr


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
    done = run_captured(sys.executable, "-c", program, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path):
    spec = EncoderSpec("new", "esm9", "protein", 8, tmp_path, {})
    with pytest.raises(
        BundleError,
        match="'esm9'; known are composition, dnabert_s, esm2, genes, huggingface, plugin",
    ) as caught:
        load_encoder(spec)
    assert str(tmp_path) in str(caught.value)


WITH_WEIGHTS = [name for name in architectures() if name in {"dnabert_s", "esm2"}]


@pytest.mark.parametrize("architecture", WITH_WEIGHTS)
def test_settings_determine_the_tensors_of_each_file(spec_of, architecture):
    spec = spec_of(architecture)
    config = config_of(spec)
    assert (config.architecture, config.view, config.dim) == (architecture, spec.view, spec.dim)
    path = spec.file("weights")
    module = import_module(f"virnucpro.encoders.{architecture}.encoder")
    needed = module.needed_tensors(path)
    wanted = config.tensor_shapes()
    stored = {name: tuple(tensor.shape) for name, tensor in needed.items()}
    assert {name: stored[name] for name in wanted} == wanted
    assert [name for name in stored if name not in wanted and "inv_freq" not in name] == []


@pytest.mark.parametrize("architecture", architectures())
@pytest.mark.parametrize("change", [{"dim": 7}, {"view": "codons"}])
def test_a_spec_with_other_attributes_is_refused(spec_of, architecture, change):
    spec = dataclasses.replace(spec_of(architecture), **change)
    with pytest.raises(BundleError, match="is listed as"):
        load_encoder(spec)


@pytest.mark.parametrize("architecture", WITH_WEIGHTS)
def test_a_spec_without_a_file_is_refused(spec_of, architecture):
    spec = dataclasses.replace(spec_of(architecture), files={})
    with pytest.raises(BundleError, match=r"has no 'weights' file.*Get the bundle"):
        load_encoder(spec)


NO_ENCODER = r"no known encoder.*\(esm2_\*\.pt\).*tokenizer\.json"


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("weights.bin", Path.touch, NO_ENCODER),
        ("esm2.ckpt", Path.touch, NO_ENCODER),
        ("folder", Path.mkdir, NO_ENCODER),
        ("gone.pt", str, r"gone\.pt: does not exist"),
    ],
)
def test_a_path_that_is_no_encoder_is_refused_with_advice(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises(BundleError, match=message):
        open_spec(tmp_path / name)
