/* Compiled forms of functions that NumPy computes elsewhere, with equal bytes as results.

   Each function names the Python function that defines its result. All sums are integers. Floating
   point follows IEEE 754 operation by operation: compile with -ffp-contract=off.

   Letters have the numbers 0 to 3 of T, C, A, G, and 4 if they are others. A codon is first << 4 |
   second << 2 | third, and UNKNOWN if it has another letter or lies outside of the sequence. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SOURCE_SHA256
#error "SOURCE_SHA256 must be the SHA-256 of this file: see hatch_build.py"
#endif

/* The SHA-256 of this file: a library of another one is not used. */
const char *virnucpro_source(void) { return SOURCE_SHA256; }

#define UNKNOWN 64
#define FOURS 136
#define THREES 32
#define RESIDUES 20
#define LAGS 7

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
static void read_codons(const uint8_t *letters, int64_t length, uint8_t *codons) {
    for (int64_t i = 0; i < length; i++) {
        codons[i] = UNKNOWN;
        if (i + 2 < length && !((letters[i] | letters[i + 1] | letters[i + 2]) & 4))
            codons[i] = letters[i] << 4 | letters[i + 1] << 2 | letters[i + 2];
    }
}

/* ---- composition.features ---------------------------------------------------------------- */

/* What `composition.features` looks up; see `virnucpro.compiled.CompositionTables`. */
typedef struct {
    uint8_t numbers[256];   /* letter of each byte */
    uint8_t fours[256];     /* column of each word of four letters */
    uint8_t threes[64];     /* column of each codon */
    uint8_t residues[64];   /* amino acid of each codon */
    uint8_t coded[64];      /* 0 for stops */
    uint8_t stops[3];       /* codons whose presence after a stretch is a feature */
    uint8_t start;          /* codon that may start a gene */
    int32_t weights[2][64]; /* by strand and codon: weight in the choice of a stretch, 0 for stops */
    int32_t properties[3][RESIDUES];
} Composition;

#define CODON_BITS 20
#define PLACE_BITS 24

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
                int32_t weight = codon < UNKNOWN ? tables->weights[strand][codon] : 0;
                Frame *frame = &frames[3 * strand + phase];
                if (weight) {
                    sums[strand] += weight;
                    continue;
                }
                frame->stops += codon < UNKNOWN;
                if (sums[strand]) frame->key = most(frame->key, sums[strand] << PLACE_BITS | place);
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

static float *put_properties(float *out, const Composition *tables, const uint8_t *residues,
                             int64_t n, int32_t *values) {
    double some = (double)most(n, 1);
    for (int property = 0; property < 3; property++) {
        int64_t sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            values[i] = tables->properties[property][residues[i]];
            sum += values[i];
            squares += (int64_t)values[i] * values[i];
        }
        double mean = (double)sum / some;
        *out++ = (float)(mean / 100);
        *out++ = (float)(((double)squares / some - mean * mean) / 100);
        for (int lag = 1; lag <= LAGS; lag++) {
            int64_t products = 0;
            for (int64_t i = 0; i + lag < n; i++) products += (int64_t)values[i] * values[i + lag];
            double found = n > lag ? (double)products / (double)(n - lag) - mean * mean : 0;
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
                       uint8_t *letters, uint8_t *starts, uint8_t *residue_of, int32_t *values) {
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
    int64_t n = frames[best].key >> (PLACE_BITS + CODON_BITS), step = best < 3 ? 3 : -3;
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
        double longest = (double)(frame->key >> (PLACE_BITS + CODON_BITS));
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
    uint8_t *room = malloc((size_t)longest * 7);
    if (!room) return -1;
    int32_t *values = (int32_t *)room;
    uint8_t *letters = room + 4 * longest;
    for (int64_t i = 0; i < n; i++) {
        put_window(tables, bases, lengths[i], out + i * width, letters, letters + longest,
                   letters + 2 * longest, values);
        bases += lengths[i];
    }
    free(room);
    return 0;
}

/* ---- genes.words.scan -------------------------------------------------------------------- */

#define GENE_LEAST 30
#define BLOCK 16
#define UNIT 8
#define UPSTREAM 18
#define MOTIFS 6
#define WORD_PLACES 12
#define LEVELS 8
#define LEVEL_SCORE 24

/* What `genes.words.scan` looks up; see `virnucpro.compiled.GeneTables`. */
typedef struct {
    uint8_t numbers[256];
    uint8_t fours[256];
    uint8_t residues[64];
    uint8_t is_stop[64];
    uint8_t starts[3], stops[3];
    uint8_t motifs[MOTIFS][6]; /* letters, 4 after the end */
    uint8_t seed[WORD_PLACES]; /* places of a word */
    uint8_t letters[64];       /* letter of each codon in the alphabet of words */
    int32_t hydropathy[64], charge[64];
    int64_t n_letters;
    uint64_t mix;
} GeneTables;

typedef struct {
    int64_t place;  /* frame * 2 ** 32 + number of the first codon in its frame */
    int32_t frame, begin, codons, left, score;
    int8_t open5, open3;
} Gene;

enum {
    BASES = 0, WORDS = 2, CODONS = 138, DIPEPTIDES = 202, FRAME = 602, LEVEL = 666, CHANGES = 674,
    GENES = 677, STRAND = 683, LENGTHS = 685, STARTS = 691, STOPS = 694, GAPS = 697, MOTIF = 707,
    SPACERS = 714, ZONES = 717, SPREADS = 729, SMALL = 735, EVIDENCE = 738
};

/* A span: its letters, and its six frames, one row of `rows` + 1 codons each in reading direction.
   Every row ends with an unknown codon. */
typedef struct {
    int64_t length, rows;
    uint8_t *letters, *codons, *frames;
    Gene *genes;
} Span;

static inline int gene_codon(const Span *span, const Gene *gene, int64_t i) {
    return span->frames[gene->frame * (span->rows + 1) + gene->begin + i];
}

static inline int right_of(const Gene *gene) { return gene->left + 3 * gene->codons; }

static void read_frames(Span *span) {
    int64_t width = span->rows + 1;
    memset(span->frames, UNKNOWN, (size_t)(6 * width));
    for (int phase = 0; phase < 3; phase++) {
        uint8_t *forward = span->frames + phase * width;
        uint8_t *backward = span->frames + (3 + phase) * width;
        for (int64_t i = 0, place = phase; place + 2 < span->length; i++, place += 3) {
            forward[i] = span->codons[place];
            backward[span->rows - 1 - i] = (uint8_t)opposite(span->codons[place]);
        }
    }
}

static int by_score(const void *one, const void *other) {
    const Gene *a = one, *b = other;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static int by_left(const void *one, const void *other) {
    const Gene *a = one, *b = other;
    return a->left < b->left ? -1 : a->left > b->left;
}

/* Find the candidates of a span; return their number. */
static int64_t open_frames(const GeneTables *tables, Span *span, const int16_t *scores) {
    int64_t n = 0, width = span->rows + 1;
    for (int frame = 0; frame < 6; frame++) {
        const uint8_t *row = span->frames + frame * width;
        int open5 = 1;
        for (int64_t begin = 0, end = 0; end < width; end++) {
            int codon = row[end];
            if (codon < UNKNOWN && !tables->is_stop[codon]) continue;
            if (end - begin >= GENE_LEAST) {
                int64_t first = begin;
                if (!open5)
                    while (first < end && memchr(tables->starts, row[first], 3) == NULL) first++;
                if (end - first >= GENE_LEAST) {
                    int64_t score = 0;
                    for (int64_t i = first; i < end; i++) score += scores[row[i]];
                    int64_t codons = end - first;
                    int64_t left = frame < 3 ? first : span->rows - first - codons;
                    if (score > 8 * UNIT)
                        span->genes[n++] = (Gene){
                            (int64_t)frame << 32 | first, frame, (int32_t)first, (int32_t)codons,
                            (int32_t)(frame % 3 + 3 * left), (int32_t)score, (int8_t)open5,
                            codon >= UNKNOWN};
                }
            }
            begin = end + 1;
            open5 = codon >= UNKNOWN;
        }
    }
    return n;
}

/* Choose genes by score: a chosen one excludes those that overlap it too much. */
static int64_t choose(Span *span, int64_t n) {
    int64_t chosen = 0;
    qsort(span->genes, (size_t)n, sizeof(Gene), by_score);
    for (int64_t i = 0; i < n; i++) {
        Gene gene = span->genes[i];
        double allowed = 0.4 * (double)(3 * (int64_t)gene.codons);
        int fits = 1;
        if (allowed > 60) allowed = 60;
        for (int64_t j = 0; j < chosen && fits; j++) {
            const Gene *other = &span->genes[j];
            int64_t shared = least(right_of(&gene), right_of(other)) - most(gene.left, other->left);
            fits = (double)shared <= allowed;
        }
        if (fits) span->genes[chosen++] = gene;
    }
    qsort(span->genes, (size_t)chosen, sizeof(Gene), by_left);
    return chosen;
}

static int digit(int64_t value, const int *limits, int n) {
    int found = 0;
    while (found < n && value >= limits[found]) found++;
    return found;
}

/* Count the codons of the best frame of each block, judged with both neighbours. */
static void count_frames(const Span *span, const int16_t *scores, int64_t *out) {
    int64_t n_blocks = span->rows / BLOCK;
    int32_t near[3][6]; /* sums of the block before, this one and the next */
    int before = -1;
    memset(near, 0, sizeof near);
    for (int64_t block = -1; block < n_blocks; block++) {
        memcpy(near[0], near[1], sizeof near[0]);
        memcpy(near[1], near[2], sizeof near[1]);
        memset(near[2], 0, sizeof near[2]);
        if (block + 1 < n_blocks)
            for (int frame = 0; frame < 6; frame++) {
                int64_t first = block + 1;
                if (frame >= 3) first = n_blocks - 1 - first;
                const uint8_t *row = span->frames + frame * (span->rows + 1) + first * BLOCK;
                for (int i = 0; i < BLOCK; i++)
                    if (row[i] < UNKNOWN) near[2][frame] += scores[row[i]];
            }
        if (block < 0) continue;
        int best = 0;
        int32_t top = 0;
        for (int frame = 0; frame < 6; frame++) {
            int32_t sum = near[0][frame] + near[1][frame] + near[2][frame];
            if (!frame || sum > top) best = frame, top = sum;
        }
        int64_t place = best < 3 ? block : n_blocks - 1 - block;
        const uint8_t *row = span->frames + best * (span->rows + 1) + place * BLOCK;
        for (int i = 0; i < BLOCK; i++)
            if (row[i] < UNKNOWN) out[FRAME + row[i]]++;
        if ((block + 1) * 3 * BLOCK > span->length) continue;
        out[LEVEL + most(0, least(floor_divide(top, LEVEL_SCORE) + 1, LEVELS - 1))]++;
        if (before >= 0) out[CHANGES + (before == best ? 0 : before / 3 == best / 3 ? 1 : 2)]++;
        before = best;
    }
}

/* Count ribosome binding sites and letters in the bases before a known start. */
static void count_border(const GeneTables *tables, const Span *span, const Gene *gene,
                         int64_t *out) {
    static const int spacers[] = {5, 9};
    uint8_t upstream[UPSTREAM];
    for (int i = 0; i < UPSTREAM; i++) {
        int away = UPSTREAM - i, reverse = gene->frame >= 3;
        int64_t place = reverse ? right_of(gene) - 1 + away : gene->left - away;
        int letter = place >= 0 && place < span->length ? span->letters[place] : 4;
        upstream[i] = (uint8_t)(reverse && letter < 4 ? letter ^ 2 : letter);
        if (letter < 4) out[ZONES + i * 3 / UPSTREAM * 4 + upstream[i]]++;
    }
    for (int motif = 0; motif < MOTIFS; motif++) {
        int length = 0;
        while (length < 6 && tables->motifs[motif][length] < 4) length++;
        for (int at = UPSTREAM - length; at >= 0; at--)
            if (!memcmp(upstream + at, tables->motifs[motif], (size_t)length)) {
                out[MOTIF + motif]++;
                out[SPACERS + digit(UPSTREAM - length - at, spacers, 2)]++;
                return;
            }
    }
    out[MOTIF + MOTIFS]++;
}

static void count_spread(const GeneTables *tables, const Span *span, const Gene *gene,
                         int64_t *out) {
    int64_t sums[3] = {0, 0, 0}, n = gene->codons;
    static const int64_t scales[] = {31, 1, 10};
    for (int64_t i = 0; i < n; i++) {
        int codon = gene_codon(span, gene, i);
        sums[0] += codon & 1;
        sums[1] += tables->hydropathy[codon];
        sums[2] += tables->charge[codon];
    }
    for (int i = 0; i < 3; i++) {
        int64_t mean = most(0, least(15 + floor_divide(scales[i] * sums[i], n), 46));
        out[SPREADS + 2 * i] += mean * n;
        out[SPREADS + 2 * i + 1] += mean * mean * n / 64;
    }
    double hydropathy = (double)sums[1] / (double)n, charge = (double)sums[2] / (double)n;
    out[SMALL] += n < 150 && hydropathy > 8;
    out[SMALL + 1] += charge < -0.5;
    out[SMALL + 2] += n < 150 && charge > 0.5;
}

static void count_gene(const GeneTables *tables, const Span *span, const Gene *gene,
                       int64_t *out) {
    static const int lengths[] = {200, 300, 500, 1000, 2000};
    int complete = !gene->open5 && !gene->open3, last = gene_codon(span, gene, gene->codons);
    int residue = 0, first = gene_codon(span, gene, 0);
    for (int64_t i = 0; i < gene->codons; i++) {
        int codon = gene_codon(span, gene, i), now = tables->residues[codon];
        out[CODONS + codon]++;
        if (i) out[DIPEPTIDES + residue * RESIDUES + now]++;
        residue = now;
    }
    out[GENES]++;
    out[GENES + 1] += complete;
    out[GENES + 2] += !gene->open5;
    out[GENES + 3] += !gene->open3;
    out[GENES + 4] += gene->codons;
    out[GENES + 5] += gene->score / UNIT;
    out[STRAND + (gene->frame >= 3)] += gene->codons;
    if (complete) out[LENGTHS + digit(3 * (int64_t)gene->codons, lengths, 5)]++;
    for (int i = 0; i < 3; i++) {
        out[STARTS + i] += !gene->open5 && first == tables->starts[i];
        out[STOPS + i] += !gene->open3 && last == tables->stops[i];
    }
    if (!gene->open5) count_border(tables, span, gene, out);
    count_spread(tables, span, gene, out);
}

/* Write the keys of the kept words of a gene; return their number. */
static int64_t put_words(const GeneTables *tables, const Span *span, const Gene *gene,
                         uint32_t *keys) {
    int64_t n = 0, last = tables->seed[WORD_PLACES - 1];
    for (int64_t i = 0; i + last < gene->codons; i++) {
        uint64_t word = 0;
        for (int place = 0; place < WORD_PLACES; place++)
            word = word * (uint64_t)tables->n_letters +
                   tables->letters[gene_codon(span, gene, i + tables->seed[place])];
        word *= tables->mix;
        if (!(word >> 31 & 1)) keys[n++] = (uint32_t)(word >> 32);
    }
    return n;
}

static int64_t put_span(const GeneTables *tables, const int16_t *scores, const uint8_t *bases,
                        Span *span, uint16_t *evidence, uint32_t *keys) {
    static const int gaps[] = {0, 30, 100, 300};
    int64_t out[EVIDENCE] = {0}, n_known = 0, n_gc = 0, n_keys = 0;
    for (int64_t i = 0; i < span->length; i++) {
        int letter = span->letters[i] = tables->numbers[bases[i]];
        n_known += letter < 4;
        n_gc += letter < 4 && letter & 1;
    }
    read_codons(span->letters, span->length, span->codons);
    for (int64_t i = 0; i + 3 < span->length; i++)
        if (span->codons[i] < UNKNOWN && span->letters[i + 3] < 4)
            out[WORDS + tables->fours[(span->codons[i] << 2 | span->letters[i + 3]) & 255]]++;
    read_frames(span);
    int64_t gc = most(0, least(10 * n_gc / most(n_known, 1) - 1, 7));
    scores += gc * 128;
    out[BASES] = n_known;
    out[BASES + 1] = span->length - n_known;
    count_frames(span, scores, out);
    int64_t n = choose(span, open_frames(tables, span, scores));
    for (int64_t i = 0; i < n; i++) {
        const Gene *gene = &span->genes[i];
        count_gene(tables, span, gene, out);
        n_keys += put_words(tables, span, gene, keys + n_keys);
        if (i) {
            const Gene *other = gene - 1;
            int gap = digit(gene->left - right_of(other), gaps, 4);
            out[GAPS + ((gene->frame >= 3) != (other->frame >= 3)) * 5 + gap]++;
        }
    }
    for (int i = 0; i < EVIDENCE; i++) evidence[i] = (uint16_t)least(out[i], UINT16_MAX);
    return n_keys;
}

/* `genes.words.scan`: n spans, one after the other in `bases`. `keys` has room for one key a base,
   and `counts` becomes the number of keys of each span. Returns the number of keys, or -1 if
   memory is lacking. */
int64_t virnucpro_scan(const GeneTables *tables, const int16_t *scores, const uint8_t *bases,
                       const int64_t *lengths, int64_t n, uint16_t *evidence, uint32_t *keys,
                       int64_t *counts) {
    int64_t longest = 1, n_keys = 0;
    for (int64_t i = 0; i < n; i++) longest = most(longest, lengths[i]);
    int64_t rows = (longest + 2 + 3 * BLOCK - 1) / (3 * BLOCK) * BLOCK;
    int64_t most_genes = 6 * (rows / GENE_LEAST + 1);
    Span span = {0, 0, malloc((size_t)longest), malloc((size_t)longest),
                 malloc((size_t)(6 * (rows + 1))), malloc((size_t)most_genes * sizeof(Gene))};
    int failed = !span.letters || !span.codons || !span.frames || !span.genes;
    for (int64_t i = 0; i < n && !failed; i++) {
        span.length = lengths[i];
        span.rows = (span.length + 2 + 3 * BLOCK - 1) / (3 * BLOCK) * BLOCK;
        counts[i] = put_span(tables, scores, bases, &span, evidence + i * EVIDENCE, keys + n_keys);
        n_keys += counts[i];
        bases += lengths[i];
    }
    free(span.letters);
    free(span.codons);
    free(span.frames);
    free(span.genes);
    return failed ? -1 : n_keys;
}

/* ---- classifier.head --------------------------------------------------------------------- */

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

/* ---- classifier.quality ------------------------------------------------------------------ */

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
