"""Names and signatures of the launcher: programs of users call them."""

import inspect

from virnucpro import launch

LAUNCH = (
    "input_dir, output_dir, gpus='auto', pattern='*', worker='virnucpro.predict', *, "
    "options=None, keywords=None, **setup_kwargs"
)
SIGNATURES = {
    "GPUDetector": "environ=None, gpus=None, describe=...",
    "GPUDetector.get_available_gpus": "",
    "GPUDetector.is_cuda_available": "",
    "GPUDetector.parse_gpu_list": "spec",
    "GPUDetector.validate_gpus": "gpu_ids",
    "GPUDetector.get_gpu_info": "gpu_id",
    "LaunchOptions": (
        "threads=None, max_attempts=3, file_timeout=None, start_timeout=600.0, "
        "progress_timeout=None, quiet=False, share=None, lock=True"
    ),
    "LaunchReport": "results, rows, exit_code",
    "LauncherOrchestrator": "",
    "LauncherOrchestrator.run": LAUNCH,
    "LauncherOrchestrator.launch": LAUNCH,
    "LauncherOrchestrator.validate_setup": "input_dir, gpus",
    "LauncherOrchestrator.get_workload_info": "input_dir, pattern='*'",
    "LauncherOrchestrator.get_gpu_info": "",
    "LoadBalancer": "gpu_ids, stream=None, devices=None",
    "LoadBalancer.monitor_progress": (
        "result_queue, total_files, progress_callback=None, silence_callback=None"
    ),
    "LoadBalancer.get_overall_rtf": "",
    "LoadBalancer.get_speedup": "",
    "LoadBalancer.get_per_gpu_stats": "",
    "LoadBalancer.get_summary_stats": "",
    "LoadBalancer.get_exit_code": "",
    "LoadBalancer.print_progress": "item",
    "LoadBalancer.print_summary": "total_files",
    "LoadBalancer.say": "text",
    "ProcessSpawner": (
        "*, max_attempts=3, file_timeout=None, setup_timeout=600.0, cleanup_timeout=60.0, "
        "progress_timeout=None, environment=None, log_folder=None, show_ui=False"
    ),
    "ProcessSpawner.spawn_workers": (
        "gpu_ids, task_queue, result_queue, worker, *, devices=None, total_files=None, "
        "keywords=None, **setup_kwargs"
    ),
    "ProcessSpawner.wait_for_completion": "timeout=None",
    "ProcessSpawner.terminate_all": "",
    "ProcessSpawner.get_process_status": "",
    "ResourceAllocator": "",
    "ResourceAllocator.validate_input_dir": "input_dir",
    "ResourceAllocator.discover_files": "input_dir, pattern='*'",
    "ResourceAllocator.look_through": "input_dir, pattern='*'",
    "ResourceAllocator.distribute_workload": "files, num_gpus, strategy='size'",
    "ResourceAllocator.largest_first": "files",
    "ResourceAllocator.create_task_queue": "files, num_workers",
    "ResourceAllocator.create_result_queue": "",
    "ResourceAllocator.estimate_workload": "files",
    "distribute_to_gpus": "records, n_gpus",
    "process_records": (
        "records, worker, n_gpus, batch_size=128, *, devices=None, max_attempts=2, "
        "batch_timeout=None, keywords=None, **setup_kwargs"
    ),
    "run_multi_gpu": LAUNCH,
}


def signature_of(function):
    """Write the parameters without annotations; ``...`` stands for a function as default."""
    signature = inspect.signature(function)
    parameters = [
        one.replace(
            annotation=one.empty,
            default=... if callable(one.default) and one.default is not one.empty else one.default,
        )
        for name, one in signature.parameters.items()
        if name != "self"
    ]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(plain)[1:-1].replace("Ellipsis", "...")


def test_public_names_keep_their_signatures():
    found = {}
    for name in launch.__all__:
        one = getattr(launch, name)
        found[name] = signature_of(one)
        if inspect.isclass(one):
            methods = inspect.getmembers(one, inspect.isfunction)
            found |= {f"{name}.{m}": signature_of(f) for m, f in methods if m[0] != "_"}
    changed = {name: found.get(name) for name in SIGNATURES if found.get(name) != SIGNATURES[name]}
    assert changed == {}


def test_the_functions_that_return_exit_codes_say_so():
    for function in (launch.run_multi_gpu, launch.LauncherOrchestrator.run):
        assert inspect.signature(function).return_annotation is int
        assert "return the exit code" in function.__doc__
        assert "Raises" not in function.__doc__


def test_an_orchestrator_exposes_its_parts():
    orchestrator = launch.LauncherOrchestrator()
    assert isinstance(orchestrator.gpu_detector, launch.GPUDetector)
    assert isinstance(orchestrator.resource_allocator, launch.ResourceAllocator)
    assert orchestrator.process_spawner is orchestrator.load_balancer is None
