/* Evidence and words of spans: `encoders.genes.evidence`. */

#include "common.h"

#define GENE_LEAST 30
#define UNIT 8
#define UPSTREAM 18
#define MOTIFS 6
#define WORD_PLACES 12
#define WORDS_AT_ONCE 64
#define AHEAD 12 /* keys */
#define WORDS_ROOM (WORDS_AT_ONCE + 256) /* places of the seed have 8 bits */
#define SHIFT_COST 20
#define START_COST 28
#define CHANGE_COST 40
#define ROOM 8 /* for the ranks of options */
#define NEVER (-(1 << 27))

/* What `genes.evidence.scan` looks up; see `virnucpro.compiled.GeneTables`. */
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
    BASES = 0, WORDS = 2, CODONS = 138, DIPEPTIDES = 202, PATH = 602, STEPS = 666, GENES = 672,
    STRAND = 678, LENGTHS = 680, STARTS = 686, STOPS = 689, GAPS = 692, MOTIF = 702, SPACERS = 709,
    ZONES = 712, SPREADS = 724, SMALL = 730, EVIDENCE = 733
};

/* Steps of a coding path, see `genes.coding_path`. */
enum { SAME, CHANGE, SHARED, LEFT_OUT, START };

/* Best scores of the ways that end here: on a codon of either strand, or outside. */
typedef struct { int32_t on[2], outside; } Best;

/* The steps before these: one for each strand, and the strand + 1 if the way came from there. */
typedef struct { uint8_t on[2], inside; } Before;

/* A span: its letters, and its six frames, one row of `rows` + 1 codons each in reading direction.
   Every row ends with an unknown codon. */
typedef struct {
    int64_t length, rows;
    uint8_t *letters, *codons, *frames;
    uint8_t *words; /* letters of words: those of a gene, and room for WORDS_AT_ONCE words after */
    Gene *genes;
    Best *best;     /* length + 2 */
    Before *before; /* length + 1 */
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

static inline int32_t higher(int32_t a, int32_t b) { return a > b ? a : b; }

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
    uint8_t breaks[UNKNOWN + 1];
    memcpy(breaks, tables->is_stop, UNKNOWN);
    breaks[UNKNOWN] = 1;
    for (int frame = 0; frame < 6; frame++) {
        const uint8_t *row = span->frames + frame * width;
        int open5 = 1;
        for (int64_t begin = 0, end; begin + GENE_LEAST < width; begin = end + 1) {
            /* The last break decides whether a run is long enough: most codons are not looked at. */
            for (end = begin + GENE_LEAST - 1; end >= begin && !breaks[row[end]];) end--;
            if (end < begin) {
                for (end = begin + GENE_LEAST; !breaks[row[end]];) end++;
                int64_t first = begin;
                if (!open5)
                    while (first < end && memchr(tables->starts, row[first], 3) == NULL) first++;
                int64_t codons = end - first, score = 0;
                for (int64_t i = first; i < end; i++) score += scores[row[i]];
                int64_t left = frame < 3 ? first : span->rows - first - codons;
                if (codons >= GENE_LEAST && score > 8 * UNIT)
                    span->genes[n++] = (Gene){
                        (int64_t)frame << 32 | first, frame, (int32_t)first, (int32_t)codons,
                        (int32_t)(frame % 3 + 3 * left), (int32_t)score, (int8_t)open5,
                        row[end] >= UNKNOWN};
            }
            open5 = row[end] >= UNKNOWN;
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

/* Find the best steps, as `coding_path._search`: scores are multiples of ROOM, and ranks of the
   options are added to them. 32 bits suffice for spans of 4,000 bases and scores of 32 units. */
static void search_path(Span *span, const int16_t *scores) {
    Best *best = span->best + 1; /* best[i]: after i bases */
    for (int i = -1; i < 3 && i <= span->length; i++) best[i] = (Best){{NEVER, NEVER}, 0};
    for (int i = 0; i < 3 && i <= span->length; i++) span->before[i] = (Before){{0, 0}, 0};
    int32_t gains[UNKNOWN + 1][2]; /* of each codon on both strands */
    for (int codon = 0; codon <= UNKNOWN; codon++) {
        gains[codon][0] = scores[codon] * ROOM;
        gains[codon][1] = scores[opposite(codon)] * ROOM;
    }
    for (int64_t end = 3; end <= span->length; end++) {
        const int32_t *gain = gains[span->codons[end - 3]];
        int32_t start = best[end - 3].outside - START_COST * ROOM;
        int32_t outside = best[end - 1].outside + 2;
        for (int strand = 0; strand < 2; strand++) {
            int32_t found = best[end - 3].on[strand] + 4;
            found = higher(found, best[end - 3].on[1 - strand] - CHANGE_COST * ROOM + 3);
            found = higher(found, best[end - 2].on[strand] - SHIFT_COST * ROOM + 2);
            found = higher(found, best[end - 4].on[strand] - SHIFT_COST * ROOM + 1);
            found = higher(found, start);
            span->before[end].on[strand] = (uint8_t)(4 - (found & (ROOM - 1)));
            best[end].on[strand] = (found & -ROOM) + gain[strand];
            outside = higher(outside, best[end].on[strand] + 1 - strand);
        }
        span->before[end].inside = (uint8_t)(2 - (outside & (ROOM - 1)));
        best[end].outside = outside & -ROOM;
    }
}

/* Count the codons, pairs of residues and steps of the coding path, from its end. */
static void count_path(const GeneTables *tables, Span *span, const int16_t *scores, int64_t *out) {
    static const int back[] = {3, 3, 2, 4, 3}, column[] = {0, 3, 2, 2, 4};
    int strand = -1, after = -1;
    search_path(span, scores);
    out[STEPS + 5] = span->best[span->length + 1].outside / (ROOM * UNIT);
    for (int64_t end = span->length; end > 0;) {
        const Before *before = span->before + end;
        if (strand < 0 && !before->inside) {
            end--;
            continue;
        }
        if (strand < 0) strand = before->inside - 1;
        int codon = span->codons[end - 3], residue = -1, step = before->on[strand];
        if (strand) codon = opposite(codon);
        if (codon < UNKNOWN) {
            if (!tables->is_stop[codon]) residue = tables->residues[codon];
            out[PATH + codon]++;
            out[STEPS]++;
            out[STEPS + 1] += !strand;
        }
        if (residue >= 0 && after >= 0)
            out[DIPEPTIDES + (strand ? after * RESIDUES + residue : residue * RESIDUES + after)]++;
        after = residue;
        if (step != SAME) {
            out[STEPS + column[step]]++;
            after = -1;
        }
        end -= back[step];
        if (step == CHANGE) strand = 1 - strand;
        if (step == START) strand = -1;
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
    int first = gene_codon(span, gene, 0);
    for (int64_t i = 0; i < gene->codons; i++) out[CODONS + gene_codon(span, gene, i)]++;
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

/* Write the halves of WORDS_AT_ONCE words: numbers of six letters each, thus of 32 bits. */
VECTORISED static void half_words(const GeneTables *tables, const uint8_t *letters,
                                  uint32_t halves[2][WORDS_AT_ONCE]) {
    uint32_t n_letters = (uint32_t)tables->n_letters;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < WORDS_AT_ONCE; i++) {
            uint32_t word = 0;
            for (int place = 0; place < WORD_PLACES / 2; place++)
                word = word * n_letters + letters[i + tables->seed[half * WORD_PLACES / 2 + place]];
            halves[half][i] = word;
        }
}

/* Write the keys of the kept words of a gene; return their number. */
static int64_t put_words(const GeneTables *tables, const Span *span, const Gene *gene,
                         uint32_t *keys) {
    int64_t n = 0, n_words = gene->codons - tables->seed[WORD_PLACES - 1];
    uint64_t shift = 1;
    for (int place = 0; place < WORD_PLACES / 2; place++) shift *= (uint64_t)tables->n_letters;
    for (int64_t i = 0; i < gene->codons; i++)
        span->words[i] = tables->letters[gene_codon(span, gene, i)];
    for (int64_t first = 0; first < n_words; first += WORDS_AT_ONCE) {
        uint32_t halves[2][WORDS_AT_ONCE];
        half_words(tables, span->words + first, halves);
        for (int i = 0; i < least(WORDS_AT_ONCE, n_words - first); i++) {
            uint64_t word = (halves[0][i] * shift + halves[1][i]) * tables->mix;
            keys[n] = (uint32_t)(word >> 32);
            n += !(word >> 31 & 1);
        }
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
    count_path(tables, span, scores, out);
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

/* `genes.evidence.scan`: n spans, one after the other in `bases`. `keys` has room for one key a
   base, and `counts` becomes the number of keys of each span. Returns the number of keys, or -1 if
   memory is lacking. */
int64_t virnucpro_scan(const GeneTables *tables, const int16_t *scores, const uint8_t *bases,
                       const int64_t *lengths, int64_t n, uint16_t *evidence, uint32_t *keys,
                       int64_t *counts) {
    int64_t longest = 1, n_keys = 0;
    for (int64_t i = 0; i < n; i++) longest = most(longest, lengths[i]);
    int64_t rows = (longest + 4) / 3;
    int64_t most_genes = 6 * (rows / GENE_LEAST + 1);
    Span span = {0, 0, malloc((size_t)longest), malloc((size_t)longest),
                 malloc((size_t)(6 * (rows + 1))), calloc((size_t)(rows + WORDS_ROOM), 1),
                 malloc((size_t)most_genes * sizeof(Gene)),
                 malloc((size_t)(longest + 2) * sizeof(Best)),
                 malloc((size_t)(longest + 1) * sizeof(Before))};
    int failed = !span.letters || !span.codons || !span.frames || !span.words || !span.genes ||
                 !span.best || !span.before;
    for (int64_t i = 0; i < n && !failed; i++) {
        span.length = lengths[i];
        span.rows = (span.length + 4) / 3;
        counts[i] = put_span(tables, scores, bases, &span, evidence + i * EVIDENCE, keys + n_keys);
        n_keys += counts[i];
        bases += lengths[i];
    }
    free(span.letters);
    free(span.codons);
    free(span.frames);
    free(span.words);
    free(span.genes);
    free(span.best);
    free(span.before);
    return failed ? -1 : n_keys;
}

/* `genes.evidence.WordTable.count`: n keys, and the row of each in `out`, which has rows of `width`
   sums: of all words, then of each value. `starts` has the place in `table` of the first key of each
   prefix, which are the bits from `shift` on, and the end of the table. */
void virnucpro_count_words(const uint32_t *table, const uint8_t *values, const int32_t *starts,
                           int64_t shift, const int64_t *owner, const uint32_t *keys, int64_t n,
                           int64_t width, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t *row = out + owner[i] * width;
        /* The table is larger than the caches: a search waits for two places in memory. */
        if (i + 2 * AHEAD < n) __builtin_prefetch(starts + (keys[i + 2 * AHEAD] >> shift));
        if (i + AHEAD < n) __builtin_prefetch(table + starts[keys[i + AHEAD] >> shift]);
        uint32_t prefix = keys[i] >> shift;
        int32_t place = starts[prefix], end = starts[prefix + 1];
        while (place < end && table[place] != keys[i]) place++;
        row[0]++;
        if (place < end) row[1 + values[place]]++;
    }
}
