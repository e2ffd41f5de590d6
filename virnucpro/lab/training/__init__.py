"""Training of classifier heads: labels, cross-validation, calibration, the new bundle."""
