/* Heads, and the quality of records: `classifier`. */

#include "common.h"

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

/* `classifier.head.standardised`: n vectors of `width` numbers. */
VECTORISED void virnucpro_standardise(const float *x, int64_t n, int64_t width, const float *mean,
                                      const float *scale, float clip, double *out) {
    for (int64_t row = 0; row < n; row++, x += width, out += width)
        for (int64_t i = 0; i < width; i++) {
            float found = (x[i] - mean[i]) / scale[i];
            found = found < -clip ? -clip : found;
            out[i] = found > clip ? clip : found;
        }
}

#define ABOVE 7
#define BELOW 5

/* `classifier.head.gelu`, in place, of n numbers; each stands for itself. */
VECTORISED void virnucpro_gelu(double *x, int64_t n, const double *above, const double *below) {
    const double half_root = sqrt(0.5);
    for (int64_t i = 0; i < n; i++) {
        double near = x[i] * half_root;
        near = near < -4 ? -4 : near;
        near = near > 4 ? 4 : near;
        double square = near * near, p = above[0], q = below[0];
        for (int k = 1; k < ABOVE; k++) p = p * square + above[k];
        for (int k = 1; k < BELOW; k++) q = q * square + below[k];
        x[i] = 0.5 * x[i] * (1 + near * p / q);
    }
}

#define WORD 12
#define NOTHING UINT32_MAX /* no word of 24 bits */

/* Return the number of distinct words among those that start at every `step`-th base, and set
   `known` to the number of words without unknown bases. `table` has a power of two of places. */
static int64_t count_words(const uint8_t *codes, int64_t length, int64_t step, uint32_t *table,
                           int64_t places, int64_t *known) {
    int64_t distinct = 0, run = 0;
    uint32_t word = 0;
    memset(table, 0xff, (size_t)places * sizeof *table);
    *known = 0;
    for (int64_t i = 0; i < length; i++) {
        run = codes[i] < 4 ? run + 1 : 0;
        word = (word << 2 | (codes[i] & 3)) & 0xffffff;
        if (run < WORD || (i - WORD + 1) % step) continue;
        ++*known;
        int64_t place = (word * 2654435769u >> 7) & (places - 1);
        while (table[place] != NOTHING && table[place] != word) place = (place + 1) & (places - 1);
        distinct += table[place] == NOTHING;
        table[place] = word;
    }
    return distinct;
}

/* `classifier.quality._examine`: n samples, one after the other in `bases`. Each has four numbers
   of bases and 64 of triplets in `counts`, and `varied` says whether a share of at least `least` of
   its words is distinct, or it has less than `few`. Returns 0, or -1 if memory is lacking. */
int virnucpro_quality(const uint8_t *bases, const int64_t *lengths, int64_t n,
                      const uint8_t *codes_of, double least_share, int64_t few, int64_t *counts,
                      uint8_t *varied) {
    int64_t longest = 1, places = 64;
    for (int64_t i = 0; i < n; i++) longest = most(longest, lengths[i]);
    while (places < 2 * longest) places *= 2;
    uint8_t *codes = malloc((size_t)longest);
    uint32_t *table = malloc((size_t)places * sizeof *table);
    int failed = !codes || !table;
    for (int64_t i = 0; i < n && !failed; i++, counts += 68, bases += lengths[i - 1]) {
        int64_t length = lengths[i], known;
        for (int64_t j = 0; j < length; j++) codes[j] = codes_of[bases[j]];
        memset(counts, 0, 68 * sizeof *counts);
        for (int64_t j = 0; j < length; j++) {
            if (codes[j] >= 4) continue;
            counts[codes[j]]++;
            if (j + 2 < length && codes[j + 1] < 4 && codes[j + 2] < 4)
                counts[4 + (codes[j] << 4 | codes[j + 1] << 2 | codes[j + 2])]++;
        }
        for (places = 64; places < 2 * length;) places *= 2;
        /* Every second word nearly always suffices to show that enough are distinct. */
        double wanted = least_share * (double)(length - WORD + 1);
        varied[i] = length - WORD + 1 < few ||
                    (double)count_words(codes, length, 2, table, places, &known) >= wanted;
        if (!varied[i]) {
            int64_t distinct = count_words(codes, length, 1, table, places, &known);
            varied[i] = known < few || (double)distinct >= least_share * (double)known;
        }
    }
    free(codes);
    free(table);
    return failed ? -1 : 0;
}
