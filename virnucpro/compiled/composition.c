/* Features of windows: `encoders.composition.features`. */

#include "common.h"

#define THREES 32
#define LAGS 7
#define AT_ONCE (1 << 16) /* products of properties, whose sum has 32 bits */

/* What `composition.features` looks up; see `virnucpro.compiled.CompositionTables`. */
typedef struct {
    uint8_t numbers[256];   /* letter of each byte */
    uint8_t fours[256];     /* column of each word of four letters */
    uint8_t threes[64];     /* column of each codon */
    uint8_t residues[64];   /* amino acid of each codon */
    uint8_t coded[64];      /* 0 for stops */
    uint8_t stops[3];       /* codons whose presence after a stretch is a feature */
    uint8_t start;          /* codon that may start a gene */
    int64_t weights[2][64]; /* by strand and codon: weight in the choice of a stretch, 0 for stops */
    int32_t properties[3][RESIDUES];
} Composition;

#define PLACE_BITS 24
#define TIE_BITS 16
#define SUM_BITS 32

typedef struct {
    int64_t key, last, stops;
} Frame;

static float *put_shares(float *out, const int32_t *counts, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += counts[i];
    double divisor = (double)most(total, 1);
    for (int i = 0; i < n; i++) out[i] = (float)((double)counts[i] / divisor);
    return out + n;
}

static inline float contrast(int64_t count, double expected) {
    return (float)(((double)count - expected) / (((double)count + expected) + 2));
}

static void find_frames(const Composition *tables, const uint8_t *codons, int64_t length,
                        Frame frames[6], int64_t known[3]) {
    for (int phase = 0; phase < 3; phase++) {
        int64_t sums[2] = {0, 0};
        known[phase] = 0;
        for (int strand = 0; strand < 2; strand++)
            frames[3 * strand + phase] = (Frame){0, 0, 0};
        for (int64_t place = phase;; place += 3) {
            int codon = place + 2 < length ? codons[place] : UNKNOWN;
            known[phase] += codon < UNKNOWN;
            for (int strand = 0; strand < 2; strand++) {
                int64_t weight = codon < UNKNOWN ? tables->weights[strand][codon] : 0;
                Frame *frame = &frames[3 * strand + phase];
                if (weight) {
                    sums[strand] += weight;
                    continue;
                }
                frame->stops += codon < UNKNOWN;
                int64_t codons_found = sums[strand] >> SUM_BITS;
                int64_t ties = least(sums[strand] & UINT32_MAX, (1 << TIE_BITS) - 1);
                if (sums[strand])
                    frame->key = most(frame->key, codons_found << (TIE_BITS + PLACE_BITS) |
                                                      ties << PLACE_BITS | place);
                sums[strand] = 0;
            }
            if (place + 2 >= length) break;
        }
    }
    for (int i = 0; i < 6; i++) frames[i].last = (frames[i].key & ((1 << PLACE_BITS) - 1)) - 3;
}

static float *put_ends(float *out, const Composition *tables, const uint8_t *codons,
                       int64_t length, int64_t first, int64_t step, int64_t n) {
    for (int side = 0; side < 2; side++) {
        int64_t at = first + (side ? -1 : n) * step;
        int codon = n && at >= 0 && at < length ? codons[at] : UNKNOWN;
        if (step < 0) codon = opposite(codon);
        for (int i = 0; i < 3; i++) *out++ = codon == tables->stops[i];
        *out++ = codon >= UNKNOWN;
    }
    return out;
}

/* Return the sum of the products of numbers at a distance. */
VECTORISED static int64_t sum_products(const int16_t *values, int64_t n, int64_t distance) {
    int64_t sum = 0;
    for (int64_t first = 0; first < n - distance; first += AT_ONCE) {
        int64_t last = least(first + AT_ONCE, n - distance);
        int32_t part = 0;
        for (int64_t i = first; i < last; i++) part += values[i] * values[i + distance];
        sum += part;
    }
    return sum;
}

static float *put_properties(float *out, const Composition *tables, const uint8_t *residues,
                             int64_t n, int16_t *values) {
    double some = (double)most(n, 1);
    for (int property = 0; property < 3; property++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++) {
            values[i] = (int16_t)tables->properties[property][residues[i]];
            sum += values[i];
        }
        double mean = (double)sum / some;
        *out++ = (float)(mean / 100);
        double squares = (double)sum_products(values, n, 0);
        *out++ = (float)((squares / some - mean * mean) / 100);
        for (int lag = 1; lag <= LAGS; lag++) {
            double products = (double)sum_products(values, n, lag);
            double found = n > lag ? products / (double)(n - lag) - mean * mean : 0;
            *out++ = (float)(found / 100);
        }
    }
    return out;
}

/* Write the chance that two draws are equal, the largest share if wanted, the root of the total. */
static float *put_repetition(float *out, const int32_t *counts, int n, int with_largest) {
    int64_t total = 0, squares = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        total += counts[i];
        squares += (int64_t)counts[i] * counts[i];
        largest = most(largest, counts[i]);
    }
    *out++ = (float)((double)squares / (double)most(total * total, 1));
    if (with_largest) *out++ = (float)((double)largest / (double)most(total, 1));
    *out++ = (float)(sqrt((double)total) / 10);
    return out;
}

static float *put_codon_bases(float *out, const int32_t codons[64], const int64_t bases[4],
                              int64_t n) {
    double share[4];
    double total = (double)most(bases[0] + bases[1] + bases[2] + bases[3], 1);
    for (int i = 0; i < 4; i++) share[i] = (double)bases[i] / total;
    for (int i = 0; i < 64; i++) {
        double expected = share[i >> 4] * share[i >> 2 & 3] * share[i & 3] * (double)n;
        *out++ = contrast(codons[i], expected);
    }
    for (int place = 0; place < 3; place++) {
        int64_t counts[4] = {0, 0, 0, 0};
        for (int i = 0; i < 64; i++) counts[i >> (4 - 2 * place) & 3] += codons[i];
        double all = (double)most(counts[0] + counts[1] + counts[2] + counts[3], 1);
        for (int i = 0; i < 4; i++) {
            double found = (double)counts[i] / all;
            out[4 * place + i] = (float)found;
            out[12 + 4 * place + i] = (float)(found - share[i]);
        }
    }
    return out + 24;
}

static float *put_borders(float *out, const int32_t counts[16]) {
    int64_t rows[4] = {0, 0, 0, 0}, columns[4] = {0, 0, 0, 0}, total = 0;
    for (int i = 0; i < 16; i++) {
        rows[i >> 2] += counts[i];
        columns[i & 3] += counts[i];
        total += counts[i];
    }
    out = put_shares(out, counts, 16);
    for (int i = 0; i < 16; i++) {
        double expected = (double)(rows[i >> 2] * columns[i & 3]) / (double)most(total, 1);
        *out++ = contrast(counts[i], expected);
    }
    return out;
}

static float *put_synonyms(float *out, const Composition *tables, const int32_t codons[64],
                           const int32_t residues[RESIDUES]) {
    int64_t degeneracy[RESIDUES] = {0};
    for (int i = 0; i < 64; i++) degeneracy[tables->residues[i]] += tables->coded[i];
    for (int i = 0; i < 64; i++) {
        int residue = tables->residues[i];
        double expected = tables->coded[i] ? (double)residues[residue] : 0;
        expected /= (double)most(degeneracy[residue], 1);
        *out++ = contrast(codons[i], expected);
    }
    return out;
}

/* Write the features of a window. `letters`, `starts` and `residues` have room for `length` bytes,
   `values` for as many numbers. */
static void put_window(const Composition *tables, const uint8_t *bases, int64_t length, float *out,
                       uint8_t *letters, uint8_t *starts, uint8_t *residue_of, int16_t *values) {
    int32_t fours[FOURS] = {0}, threes[THREES] = {0}, codons[64] = {0}, residues[RESIDUES] = {0};
    int32_t pairs[RESIDUES * RESIDUES] = {0}, borders[16] = {0};
    int64_t counts[4] = {0, 0, 0, 0}, known[3];
    Frame frames[6];
    for (int64_t i = 0; i < length; i++) {
        letters[i] = tables->numbers[bases[i]];
        if (letters[i] < 4) counts[letters[i]]++;
    }
    read_codons(letters, length, starts);
    for (int64_t i = 0; i + 2 < length; i++) {
        if (starts[i] >= UNKNOWN) continue;
        threes[tables->threes[starts[i]]]++;
        if (i + 3 < length && letters[i + 3] < 4)
            fours[tables->fours[(starts[i] << 2 | letters[i + 3]) & 255]]++;
    }
    find_frames(tables, starts, length, frames, known);
    int best = 0;
    for (int i = 1; i < 6; i++)
        if (frames[i].key > frames[best].key) best = i;
    int64_t n = frames[best].key >> (TIE_BITS + PLACE_BITS), step = best < 3 ? 3 : -3;
    int64_t first = frames[best].last - (best < 3 ? 3 * (n - 1) : 0);
    if (step < 0) {
        int64_t t = counts[0], c = counts[1];
        counts[0] = counts[2], counts[1] = counts[3], counts[2] = t, counts[3] = c;
    }
    int64_t first_start = -1;
    for (int64_t i = 0, before = 0; i < n; i++) {
        int codon = starts[first + i * step];
        if (step < 0) codon = opposite(codon);
        int residue = residue_of[i] = tables->residues[codon];
        codons[codon]++;
        residues[residue]++;
        if (i) {
            pairs[residue_of[i - 1] * RESIDUES + residue]++;
            borders[(before & 3) << 2 | codon >> 4]++;
        }
        if (codon == tables->start && first_start < 0) first_start = i;
        before = codon;
    }
    out = put_shares(out, fours, FOURS);
    out = put_shares(out, threes, THREES);
    out = put_shares(out, codons, 64);
    out = put_shares(out, residues, RESIDUES);
    out = put_shares(out, pairs, RESIDUES * RESIDUES);
    for (int shift = 0; shift < 6; shift++) {
        int strand = (best / 3) ^ (shift / 3);
        int phase = (best % 3 + (best < 3 ? 1 : 2) * (shift % 3)) % 3;
        const Frame *frame = &frames[3 * strand + phase];
        double codons_known = (double)most(known[phase], 1);
        double longest = (double)(frame->key >> (TIE_BITS + PLACE_BITS));
        out[shift] = (float)(longest / codons_known);
        out[6 + shift] = (float)((double)frame->stops / codons_known);
        out[12 + shift] = (float)(longest / 100);
        out[18 + shift] = (float)((double)frame->stops / 10);
    }
    out = put_synonyms(out + 24, tables, codons, residues);
    out = put_codon_bases(out, codons, counts, n);
    out = put_borders(out, borders);
    *out++ = (float)((double)(counts[3] - counts[1]) / (double)(counts[3] + counts[1] + 1));
    *out++ = (float)((double)(counts[2] - counts[0]) / (double)(counts[2] + counts[0] + 1));
    out = put_properties(out, tables, residue_of, n, values);
    out = put_repetition(out, fours, FOURS, 1);
    out = put_repetition(out, codons, 64, 0);
    out = put_ends(out, tables, starts, length, first, step, n);
    *out = first_start < 0 ? 1 : (float)((double)first_start / (double)n);
}

/* `composition.features.features`: n windows, one after the other in `bases`. Returns 0, or -1 if
   memory is lacking. */
int virnucpro_features(const Composition *tables, const uint8_t *bases, const int64_t *lengths,
                       int64_t n, float *out, int64_t width) {
    int64_t longest = 1;
    for (int64_t i = 0; i < n; i++) longest = most(longest, lengths[i]);
    uint8_t *room = malloc((size_t)longest * 5);
    if (!room) return -1;
    int16_t *values = (int16_t *)room;
    uint8_t *letters = room + 2 * longest;
    for (int64_t i = 0; i < n; i++) {
        put_window(tables, bases, lengths[i], out + i * width, letters, letters + longest,
                   letters + 2 * longest, values);
        bases += lengths[i];
    }
    free(room);
    return 0;
}
