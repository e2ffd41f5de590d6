"""Records in memory: each has a result or comes back with the reason."""

import pytest

from virnucpro.errors import DeviceError
from virnucpro.launch import process_records

pytestmark = pytest.mark.timeout(60)


def test_records_come_back_in_order_and_none_is_dropped(workers):
    numbers = [*range(100, 120), 13, *range(120, 140), 66, 99]
    records = [{"number": number, "kept": True} for number in numbers]
    done = process_records(
        records, workers.Doubles, 2, batch_size=4, devices="cpu:2", max_attempts=1
    )
    assert len(done) == len(records)
    for position, (record, made) in enumerate(zip(records, done, strict=True)):
        batch = numbers[position // 4 * 4 : position // 4 * 4 + 4]
        if 13 in batch:
            assert made == {**record, "_error": "ValueError: 13 is bad"}
        elif 66 in batch:
            assert "SIGKILL" in made["_error"]
        elif 99 in batch:
            assert "list of" in made["_error"]
        else:
            assert made == {"twice": 2 * record["number"]}
    assert "_error" not in records[20]


def test_records_come_back_if_no_worker_can_be_set_up(workers):
    records = [{"number": number} for number in range(10)]
    done = process_records(records, "launch_workers:Doubles", 1, 3, devices="cpu", fail=True)
    assert [one["number"] for one in done] == list(range(10))
    assert all("no device" in one["_error"] for one in done)


def test_records_that_are_no_mappings_come_back_too(workers):
    records = ["a", ("a", 1), {"k": 1}, 5]
    made = process_records(iter(records), workers.MadeOf, 1, 2, devices="cpu:2", made="fails")
    assert [one.get("_record", {"k": one.get("k")}) for one in made] == records
    assert all("no luck" in one["_error"] for one in made)


def test_a_worker_must_return_a_mapping_per_record(workers):
    records = [{"n": 1}, {"n": 2}]
    made = process_records(records, workers.MadeOf, 1, devices="cpu", made="nones")
    assert [one["n"] for one in made] == [1, 2]
    assert all("list of 2 dicts" in one["_error"] for one in made)
    done = process_records([1], workers.MadeOf, 1, devices="cpu", keywords={"made": "tuple"})
    assert done == [{"n": 1}]


def test_wrong_numbers_of_workers_and_devices_are_refused(workers):
    assert process_records([], "launch_workers:Doubles", 1) == []
    for n_gpus, batch_size in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            process_records([{}], "launch_workers:Doubles", n_gpus, batch_size)
    for devices in (["cpu"], "cpu:1"):
        with pytest.raises(DeviceError, match="2 workers were requested"):
            process_records([1, 2], workers.MadeOf, 2, devices=devices, made="tuple")
