import pytest

from virnucpro.cli.main import main


def test_an_error_prints_no_control_codes_that_came_from_elsewhere(capsys):
    assert main(["bundle", "show", "no\x1b[2J\rsuch"]) == 64
    told = capsys.readouterr().err
    assert r"no\x1b[2J\rsuch: there is no such bundle" in told


@pytest.mark.parametrize(
    "command",
    [
        ["bundle", "show", "nosuch"],
        ["bundle", "fetch", "nosuch"],
        ["bundle", "verify", "nosuch"],
        ["bench", "-m", "nosuch"],
        ["bench", "-b", "nosuch"],
        ["parity", "-b", "nosuch"],
        ["parity", "--device", "mps"],
        ["bench", "--device", "meta"],
        ["bundle", "verify", "mini", "--golden", "--device", "bogus"],
        ["predict", "x.fa", "-o", "nowhere", "-b", "nosuch"],
        ["embed", "x.fa", "-o", "nowhere", "-e", "nosuch/protein"],
    ],
)
def test_names_that_nobody_knows_are_wrong_usage_and_told_in_a_line(command, capsys):
    assert main(command) == 64
    told = capsys.readouterr().err
    assert told.startswith("virnucpro: error: ")
    assert len(told) < 300
