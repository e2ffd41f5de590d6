"""Publications to cite: the original tool and its encoders."""

PUBLICATIONS = {
    "the method (six-frame translation and language models)": (
        "Li J, Mi J, Lin W, Tian F, Wan J, Gao J, Tong Y. VirNucPro: an identifier for the "
        "identification of viral short sequences using six-frame translation and large language "
        "models. Briefings in Bioinformatics 2025;26(3):bbaf224. doi:10.1093/bib/bbaf224"
    ),
    "ESM-2 (bundles with a protein encoder)": (
        "Lin Z, Akin H, Rao R, et al. Evolutionary-scale prediction of atomic-level protein "
        "structure with a language model. Science 2023;379(6637):1123-1130. "
        "doi:10.1126/science.ade2574"
    ),
    "DNABERT-S (bundles with a nucleotide transformer)": (
        "Zhou Z, Wu W, Ho H, et al. DNABERT-S: pioneering species differentiation with "
        "species-aware DNA embeddings. 2024. doi:10.48550/arXiv.2402.08777"
    ),
}
"""Publications by their part in the program; CITATION.cff lists the same."""
