"""Training of record heads: codon scores, known words, pieces of genomes, calibration."""
