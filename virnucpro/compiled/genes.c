/* Evidence and words of spans: `encoders.genes.words`. */

#include "common.h"

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
