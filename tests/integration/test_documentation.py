"""Every command of README.md and docs/ runs here, or is listed with its reason in NOT_RUN.

The default run has those of the first page, CI all (marker `scripts`).
"""

import contextlib
import functools
import gzip
import importlib
import io
import json
import os
import random
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from virnucpro.cli.main import full_parser, main

pytestmark = pytest.mark.timeout(340)

PARSER = functools.cache(full_parser)
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README_BYTES = 6144
TOLERANCE = 2e-4
FIRST = "docs/first-run.md"
PAGES = [
    FIRST,
    "README.md",
    "scripts/slurm/README.md",
    *sorted(f"docs/{path.name}" for path in DOCS.glob("*.md") if path.name != "first-run.md"),
]
NETWORK = "downloads packages or weights"
PACKAGES = "needs an image, conda or the network; tests/packaging checks the definitions"
MINUTES = "takes minutes, or prints figures of this machine"
TRAINING = "takes minutes; tests/integration/test_train.py trains"
SCHEDULER = "needs SLURM; tests/slurm runs it"
OTHERS = "needs a program of others; the page states which ones were run"
SET_UP = "sets up an environment; .ci/run calls it"
DRAWN = "placeholders; tests/integration/test_report.py draws"
OWN_ENCODER = "tests/integration/test_own_encoder.py runs the page"
NOT_RUN = {
    ("README.md", "bash scripts/demo.sh"): SET_UP,
    **{
        ("scripts/slurm/README.md", text): SCHEDULER
        for text in (
            *("export SBATCH_ACCOUNT", "sbatch scripts/slurm/predict.sbatch", "squeue --me"),
            *("virnucpro submit --tasks 4", "ls results/", "by-hand/ --task auto", "-o one-job"),
            "sbatch --array=0-1",
        )
    },
    ("docs/slurm.md", "job=$(sbatch"): SCHEDULER,
    ("docs/install.md", "python3 -m venv ~/virnucpro"): NETWORK,
    ("docs/install.md", "pip install torch"): NETWORK,
    ("docs/install.md", "rattler-build build"): PACKAGES,
    ("docs/install.md", "docker build"): PACKAGES,
    ("docs/install.md", "apptainer build"): PACKAGES,
    ("docs/install.md", "pip wheel"): NETWORK,
    ("docs/install.md", "pip install --no-index"): NETWORK,
    ("docs/install.md", "bundle verify mini-deep --golden"): "docs/parity.md runs these",
    ("docs/models.md", "bundle fetch virnucpro-500"): NETWORK,
    ("docs/evaluate.md", "--labels labels.tsv --split valid"): MINUTES,
    ("docs/evaluate.md", "_virus_summary.tsv"): "needs tables of geNomad",
    ("docs/parity.md", "--precision bf16"): MINUTES,
    ("docs/performance.md", "bench -b mini-deep"): MINUTES,
    ("docs/train.md", "virnucpro train --labels labels.tsv"): TRAINING,
    ("docs/report.md", "virnucpro plot DIR"): DRAWN,
    ("docs/developers.md", "bash scripts/test.sh"): SET_UP,
    ("docs/embeddings.md", "-e path/to/prot_t5_folder"): NETWORK,
    **{
        ("docs/what-next.md", text): OTHERS
        for text in (
            *("seqkit grep", "checkv end_to_end", "genomad end-to-end"),
            *("iphop predict", "vcontact3 run", "pharokka.py", "bowtie2-build", "coverm contig"),
            *("ktImportText", "anvi-script-reformat-fasta", "anvi-import-collection", "igv.sh"),
            "bedtools getfasta",
        )
    },
    ("docs/contributing.md", "bash scripts/test.sh"): SET_UP,
    ("docs/contributing.md", ".venv/bin/ruff check"): SET_UP,
    ("docs/contributing.md", "notebooks.py"): "the test of the tutorials executes them",
    ("docs/index.md", "pip install ."): NETWORK,
    ("docs/own-encoder.md", "[build-system]"): OWN_ENCODER,
    ("docs/own-encoder.md", "class ResidueProperties"): OWN_ENCODER,
    ("docs/own-encoder.md", "pip install ./own_encoder"): OWN_ENCODER,
    ("docs/own-encoder.md", "import virnucpro\n\nvectors"): OWN_ENCODER,
    ("docs/embeddings.md", "library(rhdf5)"): "needs R",
    ("docs/embeddings.md", "using HDF5"): "needs Julia",
}
"""Blocks that are not run: a page and a text of the block, with the reason."""

OTHER_PROGRAMS = {
    *(
        "--signal",
        "--gpus",
        "--gpus-per-node",
        "--time",
        "--array",
        "--requeue",
        "--build-arg",
        "--nv",
    ),
    *(
        "--bind",
        "--shm-size",
        "--dirs",
        "--user",
        "--rm",
        "--wrap",
        "--partition",
        "--dependency",
        "--serve",
    ),
    *("--strict", "--local-dir", "--init"),
}
"""Options of sbatch, docker, apptainer and others in running text."""


WRITTEN = {
    "docs/python-api.md": {"viral.fa", "reads", "proteins.png"},
    "docs/what-next.md": {"confident.txt", "both.txt", "krona.txt", "bins.txt", "igv.txt"},
}
"""Files that the programs of a page write."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    title: str
    text: str

    @property
    def reason(self):
        """Why the block is not run; None if it is run."""
        found = [NOT_RUN[key] for key in NOT_RUN if self.page == key[0] and key[1] in self.text]
        return found[0] if found else None


def _blocks(page):
    fences = re.findall(
        r"^```(\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```",
        (ROOT / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return [Block(page, *fence) for fence in fences]


BLOCKS = [block for page in PAGES for block in _blocks(page)]


def _steps(block):
    """Return the commands of a console block, each with the output shown."""
    steps = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not steps[0], f"{block.page}: output without a command"
    return [(step.partition("\n")[0], step.partition("\n")[2].strip()) for step in steps[1:]]


EXAMPLE = set()
"""Commands of the first page with their output: the same ones elsewhere need no second run."""
for _block in _blocks(FIRST):
    EXAMPLE |= set(_steps(_block)) if _block.language == "console" else set()


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Return a function that runs a command in a folder: exit code, standard output and error."""
    programs = tmp_path_factory.mktemp("bin")
    for name, words in {"python": "", "virnucpro": "-m virnucpro"}.items():
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        path.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "VIRNUCPRO_DATA": str(programs / "no-bundles"),
        "MPLBACKEND": "agg",
        "OMP_WAIT_POLICY": "PASSIVE",
        "COLUMNS": "100",
    }

    def run(folder, *words):
        return subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=330,
        )

    return run


@pytest.fixture(scope="module")
def first_run(shell, tmp_path_factory):
    """A user's folder after the first page, whose commands are run here."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("tests", "scripts", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("*.png"))
    example = (ROOT / "tests" / "data" / "example.fa").read_bytes()
    (folder / "contigs.fa").write_bytes(example)
    (folder / "contigs.fa.gz").write_bytes(gzip.compress(example))
    dice = random.Random(3)
    reads = ["".join(dice.choices("ACGT", k=200)) for _ in range(9)]
    fastq = "".join(f"@r{n}\n{read}\n+\n{'I' * 200}\n" for n, read in enumerate(reads))
    for name in ("reads.fq.gz", "R1.fq.gz", "R2.fq.gz"):
        (folder / name).write_bytes(gzip.compress(fastq.encode()))
    twice = "".join(f"@r{n}\n{read}\n+\n{'I' * 200}\n" * 2 for n, read in enumerate(reads))
    (folder / "interleaved.fq.gz").write_bytes(gzip.compress(twice.encode()))
    (folder / "reads.bam").write_text(f"@CO\tunaligned\n{_sam(reads)}")
    proteins = ["M" + "".join(dice.choices("ACDEFGHIKLMNPQRSTVWY", k=60)) for _ in range(40)]
    (folder / "proteins.faa").write_text("".join(f">p{n}\n{p}\n" for n, p in enumerate(proteins)))
    genomad = folder / "genomad" / "contigs_summary"
    genomad.mkdir(parents=True)
    (genomad / "contigs_virus_summary.tsv").write_text(
        "seq_name\tlength\nNC_001422.1\t5386\nNC_007795.1:1-20000|provirus_1_9000\t9000\n"
    )
    (folder / "contigs.gb").write_text(_genbank(reads[0]))
    _run_blocks(_blocks(FIRST), folder, shell, already=set())
    return folder


def _sam(reads):
    return "".join(f"r{n}\t4\t*\t0\t0\t*\t*\t0\t0\t{read}\t*\n" for n, read in enumerate(reads))


def _genbank(bases):
    first = f"LOCUS       contig  {len(bases)} bp    DNA     linear   UNK\n"
    return f"{first}ORIGIN\n        1 {bases}\n//\n"


def _run_blocks(blocks, folder, shell, already):
    python = []
    for block in blocks:
        assert block.language in {"console", "bash", "python", "sh", "r", "julia"}, block
        if block.reason:
            continue
        if block.language == "console":
            for command, shown in _steps(block):
                if (command, shown) not in already:
                    printed = _run_line(command, folder, shell)
                    assert agrees(printed, shown), f"$ {command}\n{printed}\nshown:\n{shown}"
        elif block.language == "python":
            python.append(block)
        else:
            for line in block.text.replace("\\\n", " ").splitlines():
                _run_line(line, folder, shell)
    _run_python(python, folder, shell)


def _run_line(line, folder, shell):
    """Run a line of a shell; a plain virnucpro command in this process, which is faster."""
    command, _, behind = line.partition(" || echo ")
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[:1] != ["virnucpro"] or any(set(word) <= set(";|&()<>") for word in words):
        done = shell(folder, "bash", "-euo", "pipefail", "-c", line)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        code = main(shlex.split(command, comments=True)[1:])
    expected = re.search(r"# exit code (\d)", line)
    assert bool(code) == bool(behind or expected), f"{line}\n{printed.getvalue()}"
    return printed.getvalue() + (f"exit code {code}\n" if behind else "")


def _programs(blocks, folder):
    """Write blocks with a main guard, or a file name, as files of their own, all others as one."""
    scripts, together = {}, ""
    for number, block in enumerate(blocks):
        stem = f"{Path(block.page).stem.replace('-', '_')}_program"
        if block.title or "__main__" in block.text:
            scripts[block.title or f"{stem}{number}.py"] = block.text
        else:
            together += block.text
            scripts[f"{stem}.py"] = together
    for name, text in scripts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return scripts


def _run_python(blocks, folder, shell):
    for name, text in _programs(blocks, folder).items():
        done = shell(folder, "python", "-W", "error", name)
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        shown = re.findall(r"^ *print\(.*\)  # (.+)$", text, re.MULTILINE)
        assert agrees(done.stdout, " ... ".join(["...", *shown, "..."])), f"{text}\n{done.stdout}"


def agrees(printed, shown):
    """Return whether a text has the words shown; `...` stands for any, numbers are rounded."""
    words, parts = _words(printed), [[]]
    for word in _words(shown):
        if word == "...":
            parts.append([])
        else:
            parts[-1].append(word)
    place = 0
    for number, part in enumerate(parts):
        ends = range(place + len(part), len(words) + 1)
        first, last = number == 0, number == len(parts) - 1
        if first:
            ends = ends[:1]
        if last:
            ends = [end for end in ends if end == len(words)]
        found = (end for end in ends if _same(words[end - len(part) : end], part))
        place = next(found, -1)
        if place < 0:
            return False
    return True


def _words(text):
    """Return the words without progress, durations and throughput."""
    text = re.sub(r"^\[virnucpro\] ( *\d+%|no result for ).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\b[\d.]+ (?:ms|s|min)\b(?: \([\d.,]+ \w+/s\))?", "TIME", text)
    text = re.sub(r"\b(done|failed|skipped)( +)\d+\.\d+\b", r"\1\2TIME", text)
    return text.split()


def _same(words, part):
    return len(words) == len(part) and all(map(_same_word, words, part))


def _same_word(one, other):
    if "..." in other:
        return re.fullmatch(".*".join(map(re.escape, other.split("..."))), one) is not None
    try:
        return one == other or abs(float(one) - float(other)) <= TOLERANCE
    except ValueError:
        return False


@pytest.mark.scripts
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != FIRST and not all(block.reason for block in _blocks(page))],
)
@pytest.mark.usefixtures("fonts")
def test_the_commands_of_a_page_run_and_print_what_it_shows(page, first_run, shell, tmp_path):
    folder = tmp_path / "user"
    shutil.copytree(first_run, folder, symlinks=True)
    _run_blocks(_blocks(page), folder, shell, EXAMPLE)
    written = WRITTEN.get(page, set())
    assert {path.name for path in folder.iterdir()} >= written
    assert [name for name in written if not (folder / name).stat().st_size] == []


def test_the_first_page_runs(first_run):
    assert (first_run / "out" / "predictions.tsv").exists()


def test_the_comparison_of_outputs_can_fail():
    assert agrees("a 1.0001 b", "a 1.0002 b")
    assert agrees("a x y b", "a ... b")
    assert agrees("a x y", "... y")
    assert agrees("a (/tmp/b) c", "a (.../b) c")
    assert agrees("a\n[virnucpro] no result for 10 s; worker 0 (cpu): initializing\nb", "a b")
    assert not agrees("a 1.0001 b", "a 1.1 b")
    assert not agrees("a x y b c", "a ... b")
    assert not agrees("a b", "a b c")
    assert not agrees("a b c", "a b")


@pytest.mark.scripts
def test_the_programs_pass_strict_type_checks(needs, shell, tmp_path):
    """As for an installed package: errors in virnucpro, and missing types of others, are silent."""
    needs("mypy")
    # torch is in no public signature, and takes most of the time; Biopython has few types
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nfollow_imports = silent\nignore_missing_imports = true\n"
        "[mypy-torch.*,Bio.*]\nfollow_imports = skip\n"
    )
    blocks = {page: [one for one in _blocks(page) if one.language == "python"] for page in PAGES}
    names = [name for page in blocks for name in _programs(blocks[page], tmp_path)]
    assert {"README_program.py", "squares.py", "main.py", "python_api_program.py"} <= {*names}
    assert len({*names}) == len(names), "two pages have a program of this name"
    shutil.copy(ROOT / "tests/data/typed_mistakes.py", tmp_path)
    done = shell(tmp_path, "python", "-m", "mypy", *names, "typed_mistakes.py")
    lines = (tmp_path / "typed_mistakes.py").read_text().splitlines()
    expected = [
        (f"typed_mistakes.py:{number}", line.partition("# error: ")[2])
        for number, line in enumerate(lines, 1)
        if "# error: " in line
    ]
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(": error: ")[0] for line in found] == [where for where, _ in expected], (
        done.stdout
    )
    for line, (_, message) in zip(found, expected, strict=True):
        assert message in line


def test_blocks_that_are_not_run_exist():
    for page, text in NOT_RUN:
        assert [one for one in BLOCKS if one.page == page and text in one.text], (page, text)


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.reason], ids=lambda one: one.text[:40]
)
def test_the_options_of_a_command_that_is_not_run_exist(block, capsys):
    parser = PARSER()
    for words in _command_lines(block):
        code = 0
        try:
            parser.parse_args(words)
        except SystemExit as end:
            code = end.code
        assert not code, f"{block.page}: {shlex.join(words)}\n{capsys.readouterr().err}"


def _command_lines(block):
    """Return the words behind `virnucpro` of each such command in a block."""
    text = block.text
    if block.language == "console":
        text = "\n".join(command for command, _ in _steps(block))
    return _calls_in(text.replace("\\\n", " "))


def _calls_in(text):
    found = []
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.wordchars += "$[]{}%,:@"
        current, begins = None, True
        for word in lexer:
            if set(word) <= set(";|&()<>"):
                current, begins = None, True
            elif current is not None:
                current.append(word)
            elif (begins and re.fullmatch(r"(.*/)?virnucpro", word)) or (
                "run" in line.split() and re.fullmatch(r"virnucpro(:\w+|\.sif)", word)
            ):
                found.append(current := [])
            else:
                found += _calls_in(word) if "virnucpro " in word else []
                begins = word == "exec"
    return [words for words in found if words]


@functools.cache
def _parsers():
    """Return the options of each command, of all its actions."""

    def options(parser):
        names = set()
        for action in parser._actions:
            names |= set(action.option_strings)
            for below in action.choices.values() if isinstance(action.choices, dict) else ():
                names |= options(below)
        return names

    commands = next(one.choices for one in PARSER()._actions if isinstance(one.choices, dict))
    return {name: options(parser) for name, parser in commands.items()}


@pytest.mark.parametrize("page", PAGES)
def test_options_in_running_text_exist(page):
    """`--option` is one of some command; with a command or a script, it is one of this."""
    known = _parsers()
    anywhere = set().union(*known.values(), OTHER_PROGRAMS, {"--version", "--help"})
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`\n]+)`", text):
        options = set(re.findall(r"(?<!\S)(--[a-z][a-z-]*)", span))
        script = re.search(r"scripts/[\w/]+\.(py|sh)", span)
        if script:
            source = (ROOT / script[0]).read_text()
            assert all(option in source for option in options), f"{page}: {span}"
            continue
        assert options <= anywhere, f"{page}: {span}"
        command = re.match(r"virnucpro ([a-z]+)", span)
        if command and command[1] in known:
            assert options <= known[command[1]] | {"--help"}, f"{page}: {span}"
        elif command:
            pytest.fail(f"{page}: {span} is not a command")


def test_the_reference_has_every_public_name():
    reference = runpy.run_path(str(ROOT / "scripts" / "docs" / "reference.py"))
    pages, overview = dict(reference["pages"]()), reference["overview"]()
    for face in reference["FACES"]:
        module = importlib.import_module(face)
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__module__", "virnucpro.errors") != "virnucpro.errors":
                assert f"::: {face}.{name}\n" in pages[f"reference/{face}.{name}.md"]
                row = re.search(rf"^\| \[`{name}`.*\.md\) \| (.*) \|$", overview, re.MULTILINE)
                assert row[1], name
    assert "::: virnucpro.errors\n" in pages["reference/errors.md"]
    assert "| `window` |" in pages["reference/virnucpro.classify.md"]


@pytest.mark.scripts
@pytest.mark.parametrize("path", sorted((DOCS / "tutorials").glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_tutorial_runs_and_prints_what_it_shows(path, needs, tmp_path, monkeypatch):
    for package in ("nbclient", "ipykernel", "pandas", "sklearn"):
        needs(package)
    for folder in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(folder, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    notebooks = runpy.run_path(str(ROOT / "scripts" / "docs" / "notebooks.py"))
    stored = json.loads(path.read_text())["cells"]
    fresh = notebooks["executed"](path, tmp_path / "copy")["cells"]
    for old, new in zip(stored, fresh, strict=True):
        shown, printed = notebooks["texts"](old), notebooks["texts"](new)
        assert agrees(printed, shown), f"{printed}\nstored:\n{shown}\nrun scripts/docs/notebooks.py"
    page, pictures = notebooks["page"](path)
    assert page.count("```python") == sum(one["cell_type"] == "code" for one in stored)
    assert page.count(".png)") == len(pictures)
    assert not re.search(r"/tmp/|/home/|Traceback", page)


def test_the_figures_of_the_landing_page_are_those_of_their_sources():
    text = (DOCS / "index.md").read_text()
    figures = re.findall(r"\| \*\*(.+?)\*\* \| \[.*\]\(([\w-]+\.md)", text)
    assert len(figures) == 3
    for figure, page in figures:
        assert figure in " ".join((DOCS / page).read_text().split()), figure


def test_every_command_and_its_purpose_are_listed():
    text = (DOCS / "commands.md").read_text()
    for name in _parsers():
        assert re.search(rf"`{name}\b", text), name


def test_all_columns_of_a_launch_are_described_in_their_order():
    section = (DOCS / "columns.md").read_text().partition("\n## launch.tsv\n")[2]
    described = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    page = (DOCS / "many-files.md").read_text()
    header = re.search(r"^file .* error$", page, re.MULTILINE)[0]
    assert described == header.split()


def test_all_files_of_a_run_are_described(first_run):
    text = (DOCS / "file-formats.md").read_text()
    out = first_run / "out"
    for path in (*out.iterdir(), *out.glob("tracks/*"), *out.glob("run/*")):
        name = path.name.replace("virnucpro_mqc", "virnucpro*_mqc")
        name = re.sub(r"virnucpro_(calls|scores)_mqc", "virnucpro*_mqc", name)
        name = re.sub(r"^regions(\.bed|\.gff3)", r"\1", name)
        assert name in text, path.name
    version = json.loads((first_run / "out" / "run" / "run.json").read_text())["schema_version"]
    assert f"`schema_version` is {version}:" in text


def test_the_readme_is_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= README_BYTES
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_tables_of_accuracy_are_those_of_the_card(called):
    card = json.loads(called("bundle", "show", "mini", "--json", code=0).stdout)
    renewed = runpy.run_path(str(ROOT / "scripts" / "docs" / "accuracy.py"))["renewed"]
    page = (DOCS / "accuracy.md").read_text()
    assert page == renewed(page, card), "run scripts/docs/accuracy.py"
    with pytest.raises(ValueError, match="0 places for the table auroc"):
        renewed("", card)
