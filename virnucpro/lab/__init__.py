"""Makes and judges models: training, evaluation, validation."""
