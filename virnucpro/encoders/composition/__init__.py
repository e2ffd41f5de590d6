"""The composition encoder: counts of words, codons and amino acids, without a neural network."""
