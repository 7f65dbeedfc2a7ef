// Passages: tokens that are fed one by one, with neighbours that are made up, stand in the passages that a
// plain reading of the rule finds when all of them are known; and those that were carried in earnest.
#include "folder.h"
#include "generate_kit.h"

#include "base/words.h"
#include "generate/sequence.h"

enum { DOCUMENTS = 4, LONGEST = 160, TOKENS = 60, TRIALS = 1000, PLACES = 12 };

static const char *const texts[DOCUMENTS] = {
    ("The old bridge over the river was built by Anna of the northern town, and the miller kept its keys "
     "until the "
     "flood came down the valley and took the bridge, the mill and the miller's cat.\n"),
    ("The old bridge over the river was built by the king of the southern coast. The chimebrook flows under "
     "it, and "
     "whoever crosses the bridge after midnight hears the bells of the drowned monastery.\n"),
    ("Башенные часы пробили полночь, и старый город затих. Башенные часы пробили час, и старый сторож закрыл "
     "ворота города.\n"),
    "The bells of the monastery were cast by Anna, and hung by the miller of the northern town.\n",
};

typedef struct fixture {
    char folder[64];
    kn_lm *lm;
    kn_mixture *m;
    kn_tokens documents[DOCUMENTS];
    uint64_t first[DOCUMENTS]; // entry
} fixture;

static int fixture_open(void **state) {
    static const char *const names[] = {"a", "b", "c", "d"};
    fixture *f = calloc(1, sizeof *f);
    test_folder(f->folder, sizeof f->folder);
    for (size_t i = 0; i < DOCUMENTS; i++) write_text(f->folder, names[i], texts[i]);
    build(f->folder, SMALL, "made.store", names, DOCUMENTS, false, NULL);
    f->lm = open_model(SMALL);
    f->m = open_store(f->folder, f->lm, "made.store", 0.5, 20);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        kn_store_document d;
        OK(kn_datastore_document(kn_mixture_datastore(f->m, 0), i, &d));
        assert_true(d.name[d.name_size - 1] == names[i][0]);
        f->documents[i] = encode(f->lm, texts[i]);
        f->first[i] = d.first;
        assert_int_equal(f->documents[i].count, d.count);
    }
    *state = f;
    return 0;
}

static int fixture_close(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < DOCUMENTS; i++) kn_tokens_free(&f->documents[i]);
    kn_mixture_close(f->m);
    kn_lm_close(f->lm);
    discard(f->folder);
    free(f);
    return 0;
}

// ---------------------------------------------------------------- a text made of pieces of documents

typedef struct made_place {
    size_t document, position;
    double share;
} made_place;

typedef struct made_token {
    int32_t token;
    bool carried, blank;
    made_place places[PLACES];
    size_t count;
} made_token;

// Copies runs; now and then a token is another, left out, or put in.
static void make_text(const fixture *f, kn_random *r, made_token *out, size_t count) {
    size_t d = 0, at = 0;
    for (size_t i = 0; i < count; i++, at++) {
        size_t dice = (size_t)kn_random_below(r, 24);
        if (i == 0 || dice == 0 || at >= f->documents[d].count) {
            d = (size_t)kn_random_below(r, DOCUMENTS);
            at = (size_t)kn_random_below(r, f->documents[d].count);
        }
        if (dice == 1) at = kn_min(at + 1 + (size_t)kn_random_below(r, 5), f->documents[d].count - 1);
        if (dice == 2 && at) at--;
        size_t other = (size_t)kn_random_below(r, DOCUMENTS);
        const kn_tokens *from = dice == 3 ? &f->documents[other] : &f->documents[d];
        size_t place = dice == 3 ? (size_t)kn_random_below(r, from->count) : at;
        out[i] = (made_token){.token = from->ids[place]};
    }
}

// Some entries that have the token, in any order.
static void make_places(const fixture *f, kn_random *r, made_token *t) {
    for (size_t d = 0; d < DOCUMENTS; d++)
        for (size_t p = 0; p < f->documents[d].count && t->count < PLACES; p++)
            if (f->documents[d].ids[p] == t->token && kn_random_below(r, 4))
                t->places[t->count++] = (made_place){d, p, 0};
    for (size_t i = t->count; i > 1; i--) {
        size_t j = (size_t)kn_random_below(r, i);
        made_place other = t->places[i - 1];
        t->places[i - 1] = t->places[j];
        t->places[j] = other;
    }
}

// As a step of generation would: the nearest first, and a model that knows the token, or does not.
static void feed(const fixture *f, kn_random *r, kn_distribution *g, float *lm, kn_sequence *s,
                 made_token *t) {
    float distances[PLACES];
    int32_t values[PLACES];
    uint64_t ids[PLACES];
    double p_lm = kn_random_below(r, 2) ? 0.9 : 1e-6, sum = 0, p;
    make_places(f, r, t);
    for (size_t i = 0; i < t->count; i++) {
        distances[i] = (float)(5 * i) + (float)kn_random_below(r, 5);
        values[i] = t->token;
        ids[i] = f->first[t->places[i].document] + t->places[i].position;
        sum += exp(-(double)distances[i] / 20);
    }
    for (size_t i = 0; i < g->vocabulary; i++) lm[i] = -20;
    lm[t->token] = (float)log(p_lm);
    kn_row_neighbors found = {{distances, values, NULL, t->count, 0}, ids, NAN, false};
    OK(kn_distribution_mix(g, f->m, &found, lm, 1, NULL));
    p = t->count ? 0.5 + 0.5 * p_lm : p_lm;
    for (size_t i = 0; i < t->count; i++)
        t->places[i].share = 0.5 * exp(-(double)distances[i] / 20) / sum / p;
    t->carried = t->count && 0.5 > 0.5 * p_lm;
    kn_sequence_check_stores(s, f->m);
    OK(kn_sequence_take(s, t->token, &(kn_step){f->m, &found, g, NULL}));
}

// ---------------------------------------------------------------- the rule, plainly

typedef struct plain {
    const fixture *f;
    const made_token *x;
    size_t count;
    size_t starts[LONGEST]; // byte at which each token begins
    char text[4096];
    int64_t position[TOKENS]; // -1: stands nowhere
    size_t document[TOKENS];
} plain;

typedef struct run {
    size_t first, end, document;
    size_t from; // position of the first
    bool lone;
    double share;
    size_t differ;
} run;

static bool is_letter(unsigned char c) {
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

// In these texts: letters, digits, anything beyond ASCII; and the one apostrophe.
static bool plain_border(const char *text, size_t size, size_t at) {
    if (at == 0 || at == size) return true;
    if (text[at] == '\'' || text[at - 1] == '\'')
        return !(is_letter((unsigned char)text[at - 1]) || is_letter((unsigned char)text[at]));
    return !(is_letter((unsigned char)text[at - 1]) && is_letter((unsigned char)text[at]));
}

static bool token_border(const plain *x, size_t at) {
    return plain_border(x->text, x->starts[x->count], x->starts[at]);
}

static bool document_border(const plain *x, size_t d, size_t position) {
    const kn_tokens *t = &x->f->documents[d];
    char *text;
    size_t size;
    OK(kn_tokenizer_decode(kn_lm_tokenizer(x->f->lm), t->ids, position, &text, &size));
    free(text);
    return plain_border(texts[d], strlen(texts[d]), size);
}

static int32_t in_document(const plain *x, size_t d, size_t position) {
    const kn_tokens *t = &x->f->documents[d];
    return position < t->count ? t->ids[position] : -1;
}

static void note(plain *x, size_t at, size_t d, size_t position) {
    x->position[at] = (int64_t)position;
    x->document[at] = d;
}

// Where the passage goes on after a gap: the token, with *position; 0: nowhere.
static size_t plain_bridge(const plain *x, size_t d, size_t end, size_t last, size_t standing,
                           size_t *position) {
    for (size_t j = end; j < x->count && j <= end + 4; j++) {
        size_t best = 0;
        long least = 1000;
        for (size_t i = 0; x->x[j].carried && !x->x[j].blank && i < x->x[j].count; i++) {
            const made_place *p = &x->x[j].places[i];
            long away = labs((long)p->position - (long)(last + 1 + j - end));
            if (p->document != d || p->position <= last || p->position > last + 5) continue;
            if (away < least || (away == least && p->position < best)) {
                least = away;
                best = p->position;
            }
        }
        if (least == 1000) continue;
        size_t back = 0, on = 0;
        while (j - back > end && best - back > last + 1 &&
               x->x[j - back - 1].token == in_document(x, d, best - back - 1))
            back++;
        while (j + on < x->count && x->x[j + on].token == in_document(x, d, best + on)) on++;
        size_t gap = kn_max(j - back - end, best - back - last - 1);
        if (standing < gap || back + on < kn_max(gap, 2)) continue;
        *position = best;
        return j;
    }
    return 0;
}

// A document that has all of the passage and its next token: that of the largest share; NULL: there is none.
static const made_place *plain_move(const plain *x, size_t first, size_t end) {
    const made_place *best = NULL;
    if (end == x->count || !x->x[end].carried || x->x[end].blank || end - first > 32) return NULL;
    for (size_t i = 0; i < x->x[end].count; i++) {
        const made_place *p = &x->x[end].places[i];
        size_t n = 0;
        while (n < end - first && n < p->position &&
               x->x[end - n - 1].token == in_document(x, p->document, p->position - n - 1))
            n++;
        if (n == end - first && (!best || p->share > best->share)) best = p;
    }
    return best;
}

// Extends the passage of token `at` both ways; returns where it ends, *first is where it begins.
static size_t plain_grow(plain *x, size_t at, const made_place *from, size_t low, size_t *first,
                         size_t *document) {
    size_t end = at + 1, d = from->document, position = from->position, last = position, standing, next;
    const made_place *other;
    note(x, at, d, position);
    *first = at;
    while (*first > low && at - *first < 8 && position > at - *first &&
           x->x[*first - 1].token == in_document(x, d, position - (at - *first) - 1)) {
        --*first;
        note(x, *first, d, position - (at - *first));
    }
    for (;;) {
        while (end < x->count && x->x[end].token == in_document(x, d, last + 1)) note(x, end++, d, ++last);
        if ((other = plain_move(x, *first, end))) {
            d = other->document;
            last = other->position;
            end++;
            for (size_t i = *first; i < end; i++) note(x, i, d, last - (end - 1 - i));
            continue;
        }
        standing = 0;
        for (size_t i = *first; i < end; i++) standing += x->position[i] >= 0;
        *document = d;
        if (!(next = plain_bridge(x, d, end, last, standing, &position))) return end;
        size_t after = last;
        last = position;
        note(x, next, d, position);
        for (size_t i = next;
             i > end && position > after + 1 && x->x[i - 1].token == in_document(x, d, position - 1); i--)
            note(x, i - 1, d, --position);
        end = next + 1;
    }
}

static size_t carried_words(const plain *x, size_t first, size_t end) {
    size_t words = 0, at = x->starts[first];
    for (size_t stop; at < x->starts[end]; at = stop) {
        bool letters = false, carried = false;
        for (stop = at + 1; !plain_border(x->text, x->starts[x->count], stop); stop++) continue;
        for (size_t i = at; i < stop; i++) letters |= is_letter((unsigned char)x->text[i]);
        for (size_t i = first; i < end; i++) // a piece of it that has letters, in whole characters
            for (size_t b = kn_max(at, x->starts[i]); b < kn_min(stop, x->starts[i + 1]); b++)
                carried |= x->x[i].carried && is_letter((unsigned char)x->text[b]);
        words += letters && carried;
    }
    return words;
}

// False: nothing of it is whole words.
static bool plain_tell(const plain *x, size_t first, size_t end, size_t d, run *out) {
    while (first < end && (x->position[first] < 0 || x->x[first].blank || !token_border(x, first) ||
                           !document_border(x, d, (size_t)x->position[first])))
        first++;
    while (end > first && (x->position[end - 1] < 0 || x->x[end - 1].blank || !token_border(x, end) ||
                           !document_border(x, d, (size_t)x->position[end - 1] + 1)))
        end--;
    *out = (run){.first = first, .end = end, .document = d};
    if (first == end) return false;
    out->from = (size_t)x->position[first];
    for (size_t i = first; i < end; i++) {
        out->differ += x->position[i] < 0;
        for (size_t j = 0; x->position[i] >= 0 && j < x->x[i].count; j++)
            if (x->x[i].places[j].document == d) out->share += x->x[i].places[j].share;
    }
    out->share /= (double)(end - first - out->differ);
    out->lone = end - first < 8 && carried_words(x, first, end) < 2;
    return true;
}

static size_t plain_passages(plain *x, run *out) {
    size_t count = 0, low = 0, first;
    for (size_t i = 0; i < x->count; i++) x->position[i] = -1;
    for (size_t i = 0; i < x->count; i++) {
        const made_place *best = NULL;
        if (!x->x[i].carried || x->x[i].blank) continue;
        for (size_t j = 0; j < x->x[i].count; j++)
            if (!best || x->x[i].places[j].share > best->share) best = &x->x[i].places[j];
        size_t document, end = plain_grow(x, i, best, low, &first, &document);
        count += plain_tell(x, first, end, document, &out[count]);
        low = end;
        i = end - 1;
    }
    return count;
}

// ---------------------------------------------------------------- both

static void lay_text(plain *x, made_token *tokens, size_t count, const fixture *f, const kn_sequence *s) {
    size_t size;
    const kn_generated *generated = kn_sequence_tokens(s, &count);
    *x = (plain){.f = f, .x = tokens, .count = count};
    const char *text = kn_sequence_text(s, &size);
    memcpy(x->text, text, size);
    x->starts[count] = size;
    for (size_t i = 0; i < count; i++) {
        int32_t token = tokens[i].token;
        char *piece;
        size_t bytes;
        x->starts[i] = generated[i].offset;
        OK(kn_tokenizer_decode(kn_lm_tokenizer(f->lm), &token, 1, &piece, &bytes));
        tokens[i].blank = strspn(piece, " \n") == bytes;
        free(piece);
    }
}

static void compare(const fixture *f, const kn_sequence *s, const run *expected, size_t count) {
    size_t n, tokens, footnotes = 0;
    const kn_source *sources = kn_sequence_sources(s, &n);
    const kn_generated *t = kn_sequence_tokens(s, &tokens);
    size_t source_of[TOKENS] = {0};
    assert_int_equal(n, count);
    for (size_t i = 0; i < n; i++) {
        const kn_source *x = &sources[i];
        const run *y = &expected[i];
        assert_int_equal(x->first, y->first);
        assert_int_equal(x->tokens, y->end - y->first);
        assert_int_equal(x->position, y->from);
        assert_int_equal(x->entry, f->first[y->document] + y->from);
        assert_int_equal(x->differ, y->differ);
        assert_int_equal(x->footnote, y->lone ? 0 : ++footnotes);
        near(x->share, y->share);
        for (size_t j = y->first; j < y->end; j++) source_of[j] = i + 1;
    }
    for (size_t i = 0; i < tokens; i++) assert_int_equal(t[i].source, source_of[i]);
}

// What is around a passage is the document's text around it, in whole words.
static void check_excerpts(const fixture *f, const kn_sequence *s, const run *runs) {
    size_t n;
    const kn_source *sources = kn_sequence_sources(s, &n);
    for (size_t i = 0; i < n; i++) {
        const kn_source *x = &sources[i];
        const char *text = texts[runs[i].document];
        size_t size = strlen(text), from = (size_t)x->offset - x->before_size,
               to = (size_t)x->offset + x->text_size + x->after_size;
        assert_true(x->before_size <= x->offset && to <= size);
        assert_memory_equal(text + from, x->before, x->before_size);
        assert_memory_equal(text + x->offset, x->text, x->text_size);
        assert_memory_equal(text + x->offset + x->text_size, x->after, x->after_size);
        assert_true(plain_border(text, size, from) && plain_border(text, size, to));
        assert_int_equal(x->begins, from == 0);
        assert_int_equal(x->ends, to == size);
    }
    (void)f;
}

// What was told of a token stays: copies of it as it became final.
typedef struct told {
    size_t sources[TOKENS], count, text;
} told;

static void note_told(const kn_sequence *s, told *x) {
    size_t count, size, ended = kn_sequence_sources_ended(s), sources;
    const kn_generated *t = kn_sequence_tokens(s, &count);
    kn_sequence_text(s, &size);
    kn_sequence_sources(s, &sources);
    assert_true(count >= x->count && size >= x->text && ended <= sources);
    for (size_t i = x->count; i < count; i++) x->sources[i] = t[i].source;
    for (size_t i = 0; i < count; i++) assert_int_equal(t[i].source, x->sources[i]);
    x->count = count;
    x->text = size;
}

static void passages_are_those_of_the_rule(void **state) {
    fixture *f = *state;
    kn_distribution g;
    OK(kn_distribution_init(&g, f->lm));
    float *lm = test_alloc(g.vocabulary, sizeof *lm);
    size_t seen = 0, lone = 0, differ = 0, compared = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        kn_random r = {kn_mix64(trial)};
        made_token tokens[TOKENS];
        run runs[TOKENS];
        told before = {0};
        plain x;
        kn_generate_options o = greedy(TOKENS);
        o.sources = o.no_carry = o.ignore_end = true;
        o.around = (size_t)(trial % 7);
        kn_sequence *s = begin(f->lm, &o, "");
        make_text(f, &r, tokens, TOKENS);
        for (size_t i = 0; i < TOKENS; i++) {
            feed(f, &r, &g, lm, s, &tokens[i]);
            note_told(s, &before);
        }
        lay_text(&x, tokens, TOKENS, f, s);
        compared += !strstr(x.text, "\uFFFD");
        if (strstr(x.text,
                   "\uFFFD")) { // halves of characters met: the bytes of tokens are not those of the text
            kn_sequence_close(s);
            continue;
        }
        size_t count = plain_passages(&x, runs);
        compare(f, s, runs, count);
        check_excerpts(f, s, runs);
        for (size_t i = 0; i < count; i++) {
            seen++;
            lone += runs[i].lone;
            differ += runs[i].differ > 0;
        }
        kn_sequence_close(s);
    }
    free(lm);
    kn_distribution_free(&g);
    if (compared < 150 || seen < 400 || lone < 100 || differ < 50)
        fail_msg("%zu texts, %zu passages, %zu lone, %zu bridged", compared, seen, lone, differ);
}

// ---------------------------------------------------------------- in earnest

// A store that was taken word by word: one footnote, whatever the model knew by itself.
static void a_remembered_text_is_one_source(void **state) {
    fixture *f = *state;
    for (size_t d = 0; d < DOCUMENTS; d++) {
        kn_mixture *m = open_store(f->folder, f->lm, "made.store", 1, 0.01);
        const kn_tokens *all = &f->documents[d];
        kn_generate_options o = greedy(all->count - 12);
        size_t count, size;
        kn_sequence *s;
        o.sources = true;
        OK(kn_sequence_open(f->lm, &o, all->ids, 12, &s));
        finish(f->lm, m, s);
        const kn_source *x = kn_sequence_sources(s, &count);
        const char *text = kn_sequence_text(s, &size);
        assert_int_equal(count, 1);
        assert_int_equal(x->footnote, 1);
        assert_true(x->share > 0.5 && x->share <= 1 && x->differ == 0);
        assert_string_equal(texts[d] + strlen(texts[d]) - size, text);
        assert_true(kn_word_border(texts[d], strlen(texts[d]), (size_t)x->offset));
        assert_true(x->text_size + 16 > size);
        assert_string_equal(x->after, "\n");
        assert_memory_equal(texts[d] + x->offset, x->text, x->text_size);
        kn_sequence_close(s);
        kn_mixture_close(m);
    }
}

// A stop of several tokens takes nothing back that a source was told to have.
static void sources_end_before_stops(void **state) {
    fixture *f = *state;
    kn_mixture *m = open_store(f->folder, f->lm, "made.store", 1, 0.01);
    kn_generate_options o = greedy(100);
    const char *stop = " and the miller kept its";
    size_t count, tokens;
    o.sources = true;
    o.around = 4;
    o.stops = &stop;
    o.stop_count = 1;
    kn_sequence *s = generate(f->lm, m, &o, "The old bridge over the river was built by Anna");
    const kn_source *x = kn_sequence_sources(s, &count);
    kn_sequence_tokens(s, &tokens);
    assert_int_equal(kn_sequence_finish(s), KNNLM_FINISH_STOP);
    assert_int_equal(count, 1);
    assert_string_equal(x->text, " of the northern town,");
    assert_true(strncmp(x->after, stop, 8) == 0);
    assert_int_equal(x->first + x->tokens, tokens);
    kn_sequence_close(s);
    kn_mixture_close(m);
}

// Between two steps the store becomes another: what is known of its entries is not used.
static void stores_may_change_between_steps(void **state) {
    fixture *f = *state;
    kn_mixture *m = open_store(f->folder, f->lm, "made.store", 1, 0.01), *none = no_store(f->lm);
    kn_generate_options o = greedy(24);
    kn_generator *g;
    size_t count;
    o.sources = true;
    kn_sequence *s = begin(f->lm, &o, "The old bridge over the river was built by Anna");
    OK(kn_generator_open(f->lm, 1, &g));
    for (int i = 0; kn_sequence_finish(s) == KNNLM_FINISH_NOT; i++) {
        const kn_mixture *by = i == 10 ? none : m;
        OK(kn_generator_step(g, &s, &by, 1));
    }
    const kn_source *x = kn_sequence_sources(s, &count);
    assert_true(count >= 1 && x[0].first + x[0].tokens <= 10);
    kn_generator_close(g);
    kn_sequence_close(s);
    kn_mixture_close(none);
    kn_mixture_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passages_are_those_of_the_rule),
        cmocka_unit_test(a_remembered_text_is_one_source),
        cmocka_unit_test(sources_end_before_stops),
        cmocka_unit_test(stores_may_change_between_steps),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
