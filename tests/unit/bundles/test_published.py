import re

import pytest
from programs import run_captured

from virnucpro.bundles.checksums import Checksum, digest_of, require_content
from virnucpro.bundles.published import (
    HOMES,
    published_names,
    recipe_of,
)
from virnucpro.errors import BundleError, UsageError

LENGTHS = {"sha256": 64, "md5": 32, "git-blob": 40}


@pytest.mark.parametrize("name", published_names())
def test_every_file_has_an_https_address_and_a_digest(name):
    for file in recipe_of(name).files:
        assert file.url({}).startswith("https://")
        assert re.fullmatch(rf"[0-9a-f]{{{LENGTHS[file.checksum.kind]}}}", file.checksum.value)
        assert file.name == file.path.rpartition("/")[2]


def test_the_classifiers_use_dnabert_s_and_esm2_3b():
    for window in (300, 500):
        recipe = recipe_of(f"virnucpro-{window}")
        assert recipe.window == window
        assert [one.name for one in recipe.encoders] == ["DNABERT-S", "esm2_t36_3B_UR50D"]
        assert recipe.head.name == f"{window}_model.pth"


def test_addresses_of_the_hub_contain_a_revision():
    urls = [file.url({}) for file in recipe_of("virnucpro-500").encoders[0].files]
    assert all(re.search(r"/resolve/[0-9a-f]{40}/[\w.]+$", url) for url in urls)


@pytest.mark.parametrize("mirror", ["https://mirror.example/esm/", "https://mirror.example/esm@2"])
def test_a_mirror_replaces_the_server(mirror):
    url = recipe_of("esm2_t6_8M_UR50D").files[0].url({HOMES["esm2"].mirror_variable: mirror})
    assert url == f"{mirror.rstrip('/')}/esm2_t6_8M_UR50D.pt"


NO_ADDRESSES = ["ftp://x", "/local/folder", "file:///x", "mirror.example"]
NO_ADDRESSES += ["http://", "https:///models", "http://my mirror"]
WITH_PASSWORDS = [
    "http://bob:hunter2@mirror.example:8080",
    "https://hunter2@mirror.example/models",
    "https://bob:@mirror.example/hunter2@mirror.example",
    "ftp://bob:hunter2@mirror.example",
    "bob:hunter2@mirror.example",
    "http://bob:hunter2@mirror.example:port",
]


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        *((mirror, r"VIRNUCPRO_MIRROR_ESM2=.*https://.*--from") for mirror in NO_ADDRESSES),
        *((mirror, r"ESM2=\.\.\.@mirror\.example.*Give.*--from") for mirror in WITH_PASSWORDS),
    ],
)
def test_another_mirror_is_refused_and_its_password_not_shown(mirror, message):
    with pytest.raises(BundleError, match=message) as caught:
        recipe_of("esm2_t6_8M_UR50D").files[0].url({"VIRNUCPRO_MIRROR_ESM2": mirror})
    assert "hunter2" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        UsageError, match=r"esm3: is not a published bundle.*virnucpro-500, virnucpro-300"
    ):
        recipe_of("esm3")


@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20, (1 << 20) + 1])
def test_digests_equal_those_of_common_tools(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(bytes(i % 251 for i in range(size)))
    for kind, command in {
        "sha256": ["sha256sum", path],
        "md5": ["md5sum", path],
        "git-blob": ["git", "hash-object", "--no-filters", path],
    }.items():
        found, *_ = run_captured(*command).stdout.split()
        assert digest_of(kind, path) == Checksum(kind, found)
        require_content(path, Checksum(kind, found), "here")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_pinned_digests_match_the_shared_files(shared, name):
    files = {file.name: file for file in recipe_of("virnucpro-500").files}
    require_content(shared / "reference" / "dnabert-s" / name, files[name].checksum, "shared")


@pytest.mark.shared
def test_pinned_classifiers_match_the_reference(shared):
    found = (shared / "reference" / "README.md").read_text()
    for window in (300, 500):
        assert recipe_of(f"virnucpro-{window}").head.checksum.value in found
