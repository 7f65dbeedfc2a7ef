// Which passage of a store carried a token.
//
// A token is carried by the neighbours where lambda p_kNN > (1 - lambda) p_LM. It belongs to the passage that
// carried the token before, where a neighbour with its value is nearby in the same document; else a passage
// begins at the neighbour with its value that has the largest share, unless the token is white space, which
// is everybody's. Documents are known by their name:
// between two steps a store may be opened anew, with other numbers.
#include "generate/sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEARBY = 8 }; // tokens: a word may be left out, but a passage is not a page

// A neighbour that has the token.
typedef struct place {
    size_t store;
    uint64_t id, position;
    uint32_t document;
    double share; // of the token's probability
} place;

typedef struct places {
    place *items;
    size_t count, capacity;
} places;

// ---------------------------------------------------------------- neighbours that have the token

static bool is_carried(const kn_distribution *g, int32_t token) {
    return g->lambda * g->knn[token] > (1 - g->lambda) * exp((double)g->lm[token]);
}

static knnlm_status gather_store(const kn_step *step, size_t store, int32_t token, places *out) {
    const kn_datastore *s = kn_mixture_datastore(step->mixture, store);
    const kn_row_neighbors *found = &step->found[store];
    const kn_neighborhood *n = &found->near;
    double *shares = kn_alloc(2 * n->count, sizeof *shares);
    double p = exp(kn_distribution_logprob(step->distribution, token));
    knnlm_status status =
        shares ? kn_grow(&out->items, &out->capacity, out->count + n->count, sizeof(place)) : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        kn_prediction_shares(step->mixture, store, &step->distribution->prediction, n, shares,
                             shares + n->count);
    for (size_t i = 0; status == KNNLM_OK && i < n->count; i++) {
        kn_store_entry entry;
        if (n->values[i] != token) continue;
        status = kn_datastore_entry(s, found->ids[i], &entry);
        if (status != KNNLM_OK) break;
        out->items[out->count++] =
            (place){store, entry.id, entry.position, entry.document,
                    fmin(1, step->distribution->prediction.lambdas[store] * shares[i] / p)};
    }
    free(shares);
    return status;
}

static double share_of_document(const places *all, const place *of) {
    double sum = 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].store == of->store && all->items[i].document == of->document)
            sum += all->items[i].share;
    return fmin(1, sum);
}

// ---------------------------------------------------------------- the passage

static uint64_t distance(uint64_t a, uint64_t b) {
    return a < b ? b - a : a - b;
}

static bool is_of_document(const kn_mixture *m, const place *p, const kn_source *s) {
    const kn_datastore *store = kn_mixture_datastore(m, p->store);
    kn_store_document d;
    return strcmp(kn_datastore_describe(store)->store->path, s->store_path) == 0 &&
           kn_datastore_document(store, p->document, &d) == KNNLM_OK && d.name_size == s->document_size &&
           memcmp(d.name, s->document, d.name_size) == 0;
}

// The place at which the passage goes on: the one nearest to `expected`, of equals the one of the largest
// share. NULL: it does not.
static const place *find_next(const kn_mixture *m, const places *all, const kn_source *s, uint64_t last) {
    const place *best = NULL;
    uint64_t expected = last + 1;
    for (size_t i = 0; i < all->count; i++) {
        const place *p = &all->items[i];
        uint64_t away = distance(p->position, expected);
        if (distance(p->position, last) > NEARBY || !is_of_document(m, p, s)) continue;
        uint64_t min = best ? distance(best->position, expected) : UINT64_MAX;
        if (away < min || (away == min && p->share > best->share)) best = p;
    }
    return best;
}

static const place *find_largest(const places *all) {
    const place *best = NULL;
    for (size_t i = 0; i < all->count; i++)
        if (!best || all->items[i].share > best->share) best = &all->items[i];
    return best;
}

// ---------------------------------------------------------------- its text

static void free_texts(kn_source *s) {
    free(s->before);
    free(s->text);
    free(s->after);
    s->before = s->text = s->after = NULL;
}

// `count` tokens from entry `id` on.
static knnlm_status read_texts(const kn_sequence *q, const kn_datastore *store, uint64_t id, size_t count,
                               kn_source *s) {
    kn_origin o;
    KN_TRY(kn_datastore_origin(store, id, count, q->options.around, &o));
    free_texts(s);
    s->entry = id;
    s->position = o.entry.position;
    s->offset = o.entry.offset;
    s->before = o.before ? o.before : kn_strdup("");
    s->text = o.word ? o.word : kn_strdup("");
    s->after = o.after ? o.after : kn_strdup("");
    s->before_size = o.before_size;
    s->text_size = o.word_size;
    s->after_size = o.after_size;
    return s->before && s->text && s->after ? KNNLM_OK : KNNLM_ENOMEM;
}

// The passage goes on by the very next token: what was read stays.
static knnlm_status add_text(const kn_sequence *q, const kn_datastore *store, uint64_t id, int32_t token,
                             kn_source *s) {
    const kn_tokenizer *tokenizer = kn_datastore_tokenizer(store);
    kn_store_entry previous;
    kn_origin o;
    char *piece, *longer;
    size_t size;
    if (!tokenizer) return KNNLM_OK;
    KN_TRY(kn_datastore_entry(store, id - 1, &previous));
    KN_TRY(kn_datastore_origin(store, id, 1, q->options.around, &o));
    free(s->after);
    s->after = o.after;
    s->after_size = o.after_size;
    o.after = NULL;
    kn_origin_free(&o);
    KN_TRY(kn_piece_after(tokenizer, previous.token, token, &piece, &size));
    longer = realloc(s->text, s->text_size + size + 1);
    if (longer) {
        memcpy(longer + s->text_size, piece, size + 1);
        s->text = longer;
        s->text_size += size;
    }
    free(piece);
    return longer ? KNNLM_OK : kn_fail(KNNLM_ENOMEM, "out of memory: %zu more bytes of text", size);
}

// ---------------------------------------------------------------- its tokens

static knnlm_status begin(kn_sequence *q, const kn_mixture *m, const place *p) {
    const kn_datastore *store = kn_mixture_datastore(m, p->store);
    kn_store_document d;
    KN_TRY(kn_grow(&q->sources, &q->source_capacity, q->source_count + 1, sizeof *q->sources));
    KN_TRY(kn_datastore_document(store, p->document, &d));
    kn_source *s = &q->sources[q->source_count++];
    *s = (kn_source){.store = p->store,
                     .store_path = kn_strdup(kn_datastore_describe(store)->store->path),
                     .document = kn_strndup(d.name, d.name_size),
                     .document_size = d.name_size,
                     .first = q->count - q->prompt - 1};
    if (!s->store_path || !s->document) return KNNLM_ENOMEM;
    return read_texts(q, store, p->id, 1, s);
}

// The last position taken, which need not be that of the last token.
static uint64_t end_of(const kn_sequence *q, const kn_source *s) {
    uint64_t end = s->position;
    for (size_t i = s->first; i < s->first + s->tokens; i++)
        if (q->carried[i].position > end) end = q->carried[i].position;
    return end;
}

static knnlm_status go_on(kn_sequence *q, const kn_mixture *m, const place *p, kn_source *s) {
    const kn_datastore *store = kn_mixture_datastore(m, p->store);
    uint64_t end = end_of(q, s);
    if (p->position >= s->position && p->position <= end) return KNNLM_OK;
    if (p->position == end + 1) {
        s->entry = p->id - (p->position - s->position);
        return add_text(q, store, p->id, q->history[q->count - 1], s);
    }
    uint64_t first = p->position < s->position ? p->position : s->position;
    uint64_t last = p->position > end ? p->position : end;
    return read_texts(q, store, p->id - p->position + first, (size_t)(last - first) + 1, s);
}

static bool is_blank(const kn_sequence *q, int32_t token) {
    char *text;
    size_t size;
    if (kn_tokenizer_decode(kn_lm_tokenizer(q->lm), &token, 1, &text, &size) != KNNLM_OK) return false;
    bool blank = strspn(text, " \t\r\n") == size;
    free(text);
    return blank;
}

static knnlm_status attribute(kn_sequence *q, const kn_mixture *m, const places *all) {
    size_t at = q->count - q->prompt - 1, previous = at ? q->tokens[at - 1].source : 0;
    const place *next =
        previous ? find_next(m, all, &q->sources[previous - 1], q->carried[at - 1].position) : NULL;
    const place *chosen = next ? next : find_largest(all);
    if (!chosen || (!next && is_blank(q, q->history[q->count - 1]))) return KNNLM_OK;
    if (next)
        KN_TRY(go_on(q, m, next, &q->sources[previous - 1]));
    else
        KN_TRY(begin(q, m, chosen));
    kn_source *s = &q->sources[q->source_count - 1];
    double share = share_of_document(all, chosen);
    s->tokens++;
    s->share += (share - s->share) / (double)s->tokens;
    q->tokens[at].source = q->source_count;
    q->carried[at] = (kn_carried){chosen->position, share, s->text_size};
    return KNNLM_OK;
}

knnlm_status kn_sources_note(kn_sequence *q, const kn_step *step) {
    size_t count = q->count - q->prompt;
    int32_t token = q->history[q->count - 1];
    places all = {0};
    KN_TRY(kn_grow(&q->carried, &q->carried_capacity, count, sizeof *q->carried));
    q->carried[count - 1] = (kn_carried){0};
    size_t stores = kn_mixture_describe(step->mixture)->count;
    if (!stores || !is_carried(step->distribution, token)) return KNNLM_OK;
    knnlm_status status = KNNLM_OK;
    for (size_t s = 0; s < stores && status == KNNLM_OK; s++) status = gather_store(step, s, token, &all);
    if (status == KNNLM_OK) status = attribute(q, step->mixture, &all);
    free(all.items);
    return status;
}

// ---------------------------------------------------------------- fewer of them

static void free_source(kn_source *s) {
    free_texts(s);
    free(s->store_path);
    free(s->document);
}

// The end of its text becomes the beginning of what is after it.
static knnlm_status shorten(kn_source *s, size_t size) {
    size_t cut = s->text_size - kn_min(size, s->text_size);
    char *after = kn_alloc(cut + s->after_size + 1, 1);
    if (!after) return KNNLM_ENOMEM;
    memcpy(after, s->text + s->text_size - cut, cut);
    memcpy(after + cut, s->after, s->after_size);
    free(s->after);
    s->after = after;
    s->after_size += cut;
    s->text_size -= cut;
    s->text[s->text_size] = 0;
    return KNNLM_OK;
}

knnlm_status kn_sources_trim(kn_sequence *q, size_t count) {
    while (q->source_count && q->sources[q->source_count - 1].first >= count)
        free_source(&q->sources[--q->source_count]);
    kn_source *s = q->source_count ? &q->sources[q->source_count - 1] : NULL;
    if (!s || s->first + s->tokens <= count) return KNNLM_OK;
    s->tokens = count - s->first;
    s->share = 0;
    for (size_t i = s->first; i < count; i++) s->share += q->carried[i].share / (double)s->tokens;
    return shorten(s, q->carried[count - 1].text_size);
}

void kn_sources_free(kn_sequence *q) {
    for (size_t i = 0; i < q->source_count; i++) free_source(&q->sources[i]);
    free(q->sources);
    free(q->carried);
}
