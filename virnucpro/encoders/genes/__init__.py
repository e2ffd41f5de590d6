"""The encoder of genes: evidence of genes and protein words of pieces, without torch."""
