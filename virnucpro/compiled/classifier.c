/* Heads, and the quality of records: `classifier`. */

#include "common.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PLAIN)
#define WITH_X86
#include <immintrin.h>
#endif

/* Return a number rounded to an integer, halves to even; for numbers below 2 ** 22. */
static inline int16_t rounded(float x) { return (int16_t)((x + 12582912.0f) - 12582912.0f); }

/* `classifier.integer_network.standardised`: n vectors of `width` numbers. Returns whether any
   number is NaN. */
VECTORISED int virnucpro_standardise(const float *x, int64_t n, int64_t width, const float *mean,
                                     const float *scale, float clip, float steps, int16_t *out) {
    int nan = 0;
    for (int64_t row = 0; row < n; row++, x += width, out += width + width % 2)
        for (int64_t i = 0; i < width; i++) {
            float found = (x[i] - mean[i]) / scale[i];
            nan |= found != found;
            found = found < -clip ? -clip : found;
            found = found > clip ? clip : found;
            out[i] = rounded(found == found ? found * steps : 0);
        }
    return nan;
}

#define ABOVE 7
#define BELOW 5

/* `classifier.integer_network.hidden`: n rows of `width` sums. `erf` has the factors of the
   numerator, then of the denominator. */
VECTORISED void virnucpro_hidden(const int32_t *sums, int64_t n, int64_t width, const float *factor,
                                 const float *bias, const float *erf, float largest, float steps,
                                 int16_t *out) {
    const float half_root = (float)sqrt(0.5);
    for (int64_t row = 0; row < n; row++, sums += width, out += width + width % 2)
        for (int64_t i = 0; i < width; i++) {
            float x = (float)sums[i] * factor[i] + bias[i];
            float near = x * half_root;
            near = near < -4 ? -4 : near;
            near = near > 4 ? 4 : near;
            float square = near * near, above = erf[0], below = erf[ABOVE];
            for (int k = 1; k < ABOVE; k++) above = above * square + erf[k];
            for (int k = 1; k < BELOW; k++) below = below * square + erf[ABOVE + k];
            float found = 0.5f * x * (1 + near * above / below) * steps;
            found = found < -largest ? -largest : found;
            out[i] = rounded(found < largest ? found : largest);
        }
}

#define PANEL 16

/* Add to the sums of a row the products of its n pairs with those of a panel. */
static void add_pairs(const int16_t *x, int64_t n, const int16_t *w, int32_t sums[PANEL]) {
    for (int64_t pair = 0; pair < n; pair++, x += 2, w += 2 * PANEL)
        for (int i = 0; i < PANEL; i++) sums[i] += x[0] * w[2 * i] + x[1] * w[2 * i + 1];
}

static void plain_tile(const int16_t *x, int rows, int64_t step, int64_t n, const int16_t *w,
                       int32_t sums[][PANEL]) {
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int row = 0; row < rows; row++) add_pairs(x + row * step, n, w, sums[row]);
}

#define TILE 8

#ifdef WITH_X86
#define FOUR 4 /* rows: the sums of six, two registers each, would leave too few registers */

/* As `plain_tile`; the loops over rows are unrolled where `rows` is a constant. */
static inline __attribute__((always_inline, target("avx2"))) void avx2_rows(
    const int16_t *x, int rows, int64_t step, int64_t n, const int16_t *w, int32_t sums[][PANEL]) {
    __m256i low[FOUR], high[FOUR];
    for (int row = 0; row < rows; row++) low[row] = high[row] = _mm256_setzero_si256();
    for (int64_t pair = 0; pair < n; pair++, w += 2 * PANEL) {
        __m256i first = _mm256_loadu_si256((const __m256i *)w);
        __m256i second = _mm256_loadu_si256((const __m256i *)(w + PANEL));
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++) {
            int32_t two;
            memcpy(&two, x + row * step + 2 * pair, sizeof two);
            __m256i both = _mm256_set1_epi32(two);
            low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(first, both));
            high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(second, both));
        }
    }
    for (int row = 0; row < rows; row++) {
        _mm256_storeu_si256((__m256i *)sums[row], low[row]);
        _mm256_storeu_si256((__m256i *)(sums[row] + PANEL / 2), high[row]);
    }
}

static __attribute__((target("avx2"))) void avx2_tile(const int16_t *x, int rows, int64_t step,
                                                      int64_t n, const int16_t *w,
                                                      int32_t sums[][PANEL]) {
    int row = 0;
    for (; row + FOUR <= rows; row += FOUR) avx2_rows(x + row * step, FOUR, step, n, w, sums + row);
    for (; row < rows; row++) avx2_rows(x + row * step, 1, step, n, w, sums + row);
}

/* As `avx2_rows`, with one instruction that multiplies pairs and adds them to the sums. */
static inline __attribute__((always_inline, target("avx512f,avx512vnni"))) void vnni_rows(
    const int16_t *x, int rows, int64_t step, int64_t n, const int16_t *w, int32_t sums[][PANEL]) {
    __m512i found[TILE];
    for (int row = 0; row < rows; row++) found[row] = _mm512_setzero_si512();
    for (int64_t pair = 0; pair < n; pair++, w += 2 * PANEL) {
        __m512i weights = _mm512_loadu_si512(w);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            int32_t two;
            memcpy(&two, x + row * step + 2 * pair, sizeof two);
            found[row] = _mm512_dpwssd_epi32(found[row], weights, _mm512_set1_epi32(two));
        }
    }
    for (int row = 0; row < rows; row++) _mm512_storeu_si512(sums[row], found[row]);
}

static __attribute__((target("avx512f,avx512vnni"))) void vnni_tile(const int16_t *x, int rows,
                                                                    int64_t step, int64_t n,
                                                                    const int16_t *w,
                                                                    int32_t sums[][PANEL]) {
    if (rows == TILE)
        vnni_rows(x, TILE, step, n, w, sums);
    else
        for (int row = 0; row < rows; row++) vnni_rows(x + row * step, 1, step, n, w, sums + row);
}
#endif

/* `classifier.integer_network._Layer.sums`: n rows of `width` inputs, an even number. `w` has
   `n_blocks` blocks of panels; each has the pairs of weights of PANEL of the block's `n_outputs`
   outputs, with zeros after the last. */
void virnucpro_products(const int16_t *x, int64_t n, int64_t width, const int16_t *w,
                        int64_t n_blocks, int64_t n_outputs, int32_t *out) {
    int64_t n_pairs = width / n_blocks / 2;
    int32_t sums[TILE][PANEL];
    void (*tile)(const int16_t *, int, int64_t, int64_t, const int16_t *, int32_t[][PANEL]) =
        plain_tile;
#ifdef WITH_X86
    if (__builtin_cpu_supports("avx2")) tile = avx2_tile;
#ifndef NO_VNNI
    if (__builtin_cpu_supports("avx512vnni")) tile = vnni_tile;
#endif
#endif
    for (int64_t block = 0; block < n_blocks; block++)
        for (int64_t first = 0; first < n_outputs; first += PANEL, w += 2 * PANEL * n_pairs) {
            int64_t columns = least(PANEL, n_outputs - first);
            for (int64_t row = 0; row < n; row += TILE) {
                int rows = (int)least(TILE, n - row);
                tile(x + row * width + 2 * n_pairs * block, rows, width, n_pairs, w, sums);
                for (int i = 0; i < rows; i++)
                    memcpy(out + ((row + i) * n_blocks + block) * n_outputs + first, sums[i],
                           (size_t)columns * sizeof **sums);
            }
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
