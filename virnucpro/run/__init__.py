"""Run folders: job, open run, manifest, status, outputs, verification."""
