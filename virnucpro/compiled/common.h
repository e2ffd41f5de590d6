/* What all files share. Each function names the Python function that defines its result.

   All sums are integers. Floating point follows IEEE 754 operation by operation: compile with
   -ffp-contract=off.

   Letters have the numbers 0 to 3 of T, C, A, G, and 4 if they are others. A codon is first << 4 |
   second << 2 | third, and UNKNOWN if it has another letter or lies outside of the sequence. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN 64
#define FOURS 136
#define RESIDUES 20

/* For functions of one call a window or span: a clone for each kind of processor. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

static inline int opposite(int codon) {
    if (codon >= UNKNOWN) return UNKNOWN;
    return ((codon & 3) ^ 2) << 4 | ((codon >> 2 & 3) ^ 2) << 2 | ((codon >> 4) ^ 2);
}

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t floor_divide(int64_t a, int64_t b) {
    int64_t found = a / b;
    return found * b > a ? found - 1 : found;
}

/* Write the codon that starts at each of `length` letters. */
VECTORISED static inline void read_codons(const uint8_t *letters, int64_t length, uint8_t *codons) {
    for (int64_t i = 0; i + 2 < length; i++) {
        uint8_t unknown = (letters[i] | letters[i + 1] | letters[i + 2]) & 4;
        uint8_t codon = (uint8_t)(letters[i] << 4 | letters[i + 1] << 2 | letters[i + 2]);
        codons[i] = unknown ? UNKNOWN : codon;
    }
    for (int64_t i = most(length - 2, 0); i < length; i++) codons[i] = UNKNOWN;
}
