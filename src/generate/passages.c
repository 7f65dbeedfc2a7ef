// Which passages of the stores the generated tokens stand in.
//
// A token is carried by the stores where they have more of its probability than the model (and the cache). A
// passage begins at a carried token, where the neighbour of the largest share stands, unless the token is
// white space, which is everybody's. It has all tokens around that one, whoever carried them, which stand in
// the document at the places before and after: a sentence taken from a document is one passage, although the
// model knew half of its words.
//
// Where several documents have the same words, a passage is of the one that goes on as the text does: when
// its next token does not stand, but is carried by a neighbour before which all of the passage stands, it
// moves there.
//
// A passage may leave out, and the text may have other, up to GAP tokens, a word or two, such as a name that
// was put in place of another. It goes on where a carried token has a neighbour in the document at most so
// far ahead (any two texts have a "the" in common after a few words that differ), if on both sides of the gap
// as many tokens stand in the document as were passed over: more was taken than was not. After it two at
// least: a comma comes in any sentence.
//
// Passages are told in whole words, of the text and of the document alike. One is lone where neighbours
// carried a single word of it: the words beside that are there by chance, as a rule. Lone ones are marked,
// but no footnotes; nor are those a rule of dashes long.
//
// What may still change is not told: so tokens are final about REACH later.
#include "generate/sequence.h"

#include "base/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GAP = 4,
    REACH = 8,  // tokens that a passage reaches back before its first carried one
    MOVED = 32, // tokens of the longest that moves
};

static const kn_tokenizer *tokenizer_of(const kn_sequence *q) {
    return kn_lm_tokenizer(q->lm);
}

static int32_t token_at(const kn_sequence *q, size_t at) {
    return q->history[q->prompt + at];
}

static const kn_datastore *store_of(const kn_sequence *q, const kn_mixture *m) {
    return kn_mixture_datastore(m, q->taking.store);
}

static bool is_finished(const kn_sequence *q) {
    return q->finish != KNNLM_FINISH_NOT;
}

// By its own bytes: in the text, a space and the beginning of a character are a space as yet.
static bool is_blank(const kn_sequence *q, size_t at) {
    int32_t token = token_at(q, at);
    char *text;
    size_t size;
    if (kn_tokenizer_decode(tokenizer_of(q), &token, 1, &text, &size) != KNNLM_OK) return false;
    bool blank = strspn(text, " \t\r\n") == size;
    free(text);
    return blank;
}

// ---------------------------------------------------------------- notes

knnlm_status kn_passages_note(kn_sequence *q, kn_place *places, size_t count) {
    size_t at = q->count - q->prompt - 1;
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += places[i].share;
    knnlm_status status = kn_grow(&q->notes, &q->note_capacity, at + 1, sizeof *q->notes);
    if (status != KNNLM_OK) {
        free(places);
        return status;
    }
    q->notes[at] = (kn_note){.places = places, .place_count = count, .carried = sum > 0.5};
    q->note_count = at + 1;
    return KNNLM_OK;
}

static void forget_places(kn_note *n) {
    free(n->places);
    n->places = NULL;
    n->place_count = 0;
}

static size_t seen(const kn_sequence *q) {
    return q->taking.open ? q->taking.end : q->looked;
}

// No passage reaches back so far: not from what has been seen since `from` had.
static void forget_passed(kn_sequence *q, size_t from) {
    for (size_t i = from > MOVED ? from - MOVED : 0; i + MOVED < seen(q); i++) forget_places(&q->notes[i]);
}

// ---------------------------------------------------------------- the places of a token

static bool is_in_document(const kn_taking *t, const kn_place *p) {
    return p->store == t->store && p->id >= t->entry && p->id - t->entry < t->count;
}

static void stand(kn_sequence *q, size_t at, uint64_t position) {
    kn_note *n = &q->notes[at];
    n->stands = true;
    n->position = position;
    n->share = 0;
    for (size_t i = 0; i < n->place_count; i++)
        if (is_in_document(&q->taking, &n->places[i])) n->share += n->places[i].share;
    n->share = fmin(1, n->share);
}

static const kn_place *find_largest(const kn_note *n) {
    const kn_place *best = NULL;
    for (size_t i = 0; i < n->place_count; i++)
        if (!best || n->places[i].share > best->share) best = &n->places[i];
    return best;
}

// Tokens before `at`, which stands at `position`, stand there too as long as they are the same: not before
// token `low`, nor before the document's position `from`. *first of them.
static knnlm_status reach_back(kn_sequence *q, const kn_datastore *store, size_t at, uint64_t position,
                               size_t low, uint64_t from, size_t *first) {
    int32_t before[REACH];
    size_t count = kn_min(kn_min(at - low, (size_t)(position - from)), REACH);
    KN_TRY(kn_datastore_tokens(store, q->taking.entry + position - count, count, before));
    *first = at;
    for (size_t i = 1; i <= count && before[count - i] == token_at(q, at - i); i++) {
        *first = at - i;
        stand(q, at - i, position - i);
    }
    return KNNLM_OK;
}

// ---------------------------------------------------------------- whole words

static knnlm_status text_border(const kn_sequence *q, size_t at, bool *border) {
    size_t place = q->prompt + at, end = q->prompt + q->tokens_sure;
    size_t left = kn_min(place, KN_BORDER_CONTEXT), right = kn_min(end - place, KN_BORDER_CONTEXT);
    *border = is_finished(q);
    if (place == end) return KNNLM_OK; // not known yet
    return kn_tokens_border(tokenizer_of(q), q->history + place - left, left, left + right, border);
}

// Before token `at` of the text, and before `position` of the document.
static knnlm_status is_border(const kn_sequence *q, const kn_mixture *m, size_t at, uint64_t position,
                              bool *border) {
    const kn_taking *t = &q->taking;
    KN_TRY(text_border(q, at, border));
    if (!*border) return KNNLM_OK;
    return kn_document_border(tokenizer_of(q), store_of(q, m), t->entry, t->count, position, border);
}

// The tokens [*first, *end) of the passage that are whole words, with no white space around them.
static knnlm_status find_words(const kn_sequence *q, const kn_mixture *m, size_t *first, size_t *end) {
    const kn_note *notes = q->notes;
    bool border = false;
    *first = q->taking.first;
    *end = q->taking.end;
    for (; *first < *end; ++*first) {
        if (!notes[*first].stands || is_blank(q, *first)) continue;
        KN_TRY(is_border(q, m, *first, notes[*first].position, &border));
        if (border) break;
    }
    for (; *end > *first; --*end) {
        if (!notes[*end - 1].stands || is_blank(q, *end - 1)) continue;
        KN_TRY(is_border(q, m, *end, notes[*end - 1].position + 1, &border));
        if (border) break;
    }
    return KNNLM_OK;
}

// Words of tokens [first, end) that were carried, at least in part.
static size_t count_carried(const kn_sequence *q, size_t first, size_t end) {
    size_t count = 0;
    bool counted = false;
    for (size_t i = first; i < end; i++) {
        const kn_generated *t = &q->tokens[i];
        if (kn_word_border(q->text.data, q->text.size, t->offset)) counted = false;
        if (counted || !q->notes[i].carried || !kn_word_count(q->text.data + t->offset, t->size)) continue;
        counted = true;
        count++;
    }
    return count;
}

// So many tokens one after another are no chance, whoever carried them.
static bool is_lone(const kn_sequence *q, size_t first, size_t end) {
    return end - first < REACH && count_carried(q, first, end) < 2;
}

// ---------------------------------------------------------------- telling

static size_t next_footnote(const kn_sequence *q) {
    size_t n = 1;
    for (size_t i = 0; i < q->source_count; i++) n += q->sources[i].footnote > 0;
    return n;
}

static knnlm_status name_document(const kn_sequence *q, const kn_mixture *m, kn_source *s) {
    const kn_datastore *store = store_of(q, m);
    kn_store_document d;
    KN_TRY(kn_datastore_document(store, q->taking.document, &d));
    free(s->store_path);
    free(s->document);
    s->store = q->taking.store;
    s->store_path = kn_strdup(kn_datastore_describe(store)->store->path);
    s->document = kn_strndup(d.name, d.name_size);
    s->document_size = d.name_size;
    return s->store_path && s->document ? KNNLM_OK : KNNLM_ENOMEM;
}

static knnlm_status add_source(kn_sequence *q, const kn_mixture *m, size_t first, bool lone) {
    KN_TRY(kn_grow(&q->sources, &q->source_capacity, q->source_count + 1, sizeof *q->sources));
    size_t footnote = lone ? 0 : next_footnote(q);
    kn_source *s = &q->sources[q->source_count++];
    *s = (kn_source){.footnote = footnote, .first = first};
    q->taking.source = q->source_count;
    return name_document(q, m, s);
}

static void count_tokens(kn_sequence *q, kn_source *s, size_t end) {
    double sum = 0;
    s->differ = 0;
    for (size_t i = s->first; i < end; i++) {
        q->tokens[i].source = q->taking.source;
        sum += q->notes[i].share;
        s->differ += !q->notes[i].stands;
    }
    s->tokens = end - s->first;
    s->share = sum / (double)(s->tokens - s->differ);
}

// As much of the passage as is known to be whole words; `ended`: no more will come.
static knnlm_status tell(kn_sequence *q, const kn_mixture *m, bool ended) {
    size_t first, end;
    KN_TRY(find_words(q, m, &first, &end));
    if (first == end) return KNNLM_OK;
    if (!q->taking.source) {
        bool lone = is_lone(q, first, end);
        if (lone && !ended) return KNNLM_OK;
        KN_TRY(add_source(q, m, first, lone));
    }
    kn_source *s = &q->sources[q->taking.source - 1];
    if (end <= s->first + s->tokens) return KNNLM_OK; // what is told stays
    count_tokens(q, s, end);
    kn_excerpt x = {.entry = q->taking.entry,
                    .count = q->taking.count,
                    .from = q->notes[s->first].position,
                    .to = q->notes[end - 1].position + 1,
                    .around = q->options.around};
    return kn_excerpt_read(tokenizer_of(q), store_of(q, m), &x, s);
}

// ---------------------------------------------------------------- growing

// The passage is of the document of `place`, which has token `at`.
static knnlm_status seat(kn_sequence *q, const kn_mixture *m, size_t at, const kn_place *place) {
    const kn_datastore *store = kn_mixture_datastore(m, place->store);
    kn_taking *t = &q->taking;
    kn_store_entry entry;
    kn_store_document d;
    KN_TRY(kn_datastore_entry(store, place->id, &entry));
    KN_TRY(kn_datastore_document(store, entry.document, &d));
    t->store = place->store;
    t->document = entry.document;
    t->entry = d.first;
    t->count = d.count;
    t->end = at + 1;
    t->last = entry.position;
    stand(q, at, entry.position);
    return KNNLM_OK;
}

static knnlm_status begin_at(kn_sequence *q, const kn_mixture *m, size_t at, const kn_place *place) {
    q->taking = (kn_taking){.open = true};
    KN_TRY(seat(q, m, at, place));
    size_t low = kn_max(q->passed, at > REACH ? at - REACH : 0);
    return reach_back(q, store_of(q, m), at, q->taking.last, low, 0, &q->taking.first);
}

static knnlm_status look(kn_sequence *q, const kn_mixture *m) {
    size_t at = q->looked++;
    const kn_note *n = &q->notes[at];
    return n->carried && !is_blank(q, at) ? begin_at(q, m, at, find_largest(n)) : KNNLM_OK;
}

static knnlm_status end(kn_sequence *q, const kn_mixture *m) {
    KN_TRY(tell(q, m, true));
    q->looked = q->passed = q->taking.end;
    q->taking = (kn_taking){0};
    return KNNLM_OK;
}

static knnlm_status next_stands(const kn_sequence *q, const kn_mixture *m, bool *stands) {
    const kn_taking *t = &q->taking;
    int32_t next;
    *stands = false;
    if (t->last + 1 >= t->count) return KNNLM_OK;
    KN_TRY(kn_datastore_tokens(store_of(q, m), t->entry + t->last + 1, 1, &next));
    *stands = next == token_at(q, t->end);
    return KNNLM_OK;
}

// Whether all of the passage stands before an entry.
static knnlm_status stands_before(const kn_sequence *q, const kn_datastore *store, uint64_t id, bool *all) {
    const int32_t *tokens = q->history + q->prompt + q->taking.first;
    size_t count = q->taking.end - q->taking.first;
    int32_t before[MOVED];
    kn_store_entry entry;
    *all = false;
    KN_TRY(kn_datastore_entry(store, id, &entry));
    if (entry.position < count) return KNNLM_OK;
    KN_TRY(kn_datastore_tokens(store, id - count, count, before));
    *all = memcmp(before, tokens, count * sizeof *tokens) == 0;
    return KNNLM_OK;
}

// To the document of the largest share that has the whole passage and its next token, if there is one.
static knnlm_status move(kn_sequence *q, const kn_mixture *m, bool *moved) {
    kn_taking *t = &q->taking;
    const kn_note *n = &q->notes[t->end];
    const kn_place *best = NULL;
    *moved = false;
    if (!n->carried || is_blank(q, t->end) || t->end - t->first > MOVED) return KNNLM_OK;
    for (size_t i = 0; i < n->place_count; i++) {
        const kn_place *p = &n->places[i];
        bool all;
        if (best && p->share <= best->share) continue;
        KN_TRY(stands_before(q, kn_mixture_datastore(m, p->store), p->id, &all));
        if (all) best = p;
    }
    *moved = best;
    if (!best) return KNNLM_OK;
    KN_TRY(seat(q, m, t->end, best));
    for (size_t i = t->first; i + 1 < t->end; i++) stand(q, i, t->last - (t->end - 1 - i));
    return t->source ? name_document(q, m, &q->sources[t->source - 1]) : KNNLM_OK;
}

// The place at which the passage goes on with token `at`: that which leaves out as many of the document's
// tokens as the text has others, or about as many; of equals the first. NULL: there is none.
static const kn_place *find_bridge(const kn_sequence *q, size_t at) {
    const kn_taking *t = &q->taking;
    const kn_note *n = &q->notes[at];
    const kn_place *best = NULL;
    uint64_t expected = t->entry + t->last + 1 + (at - t->end), least = UINT64_MAX;
    for (size_t i = 0; n->carried && !is_blank(q, at) && i < n->place_count; i++) {
        const kn_place *p = &n->places[i];
        if (!is_in_document(t, p) || p->id <= t->entry + t->last || p->id > t->entry + t->last + 1 + GAP)
            continue;
        uint64_t away = p->id < expected ? expected - p->id : p->id - expected;
        if (away > least || (away == least && p->id > best->id)) continue;
        best = p;
        least = away;
    }
    return best;
}

typedef enum verdict { NO, YES, WAIT } verdict; // WAIT: tokens to come decide

// How many tokens from `at` on stand in the document from `position` on, `max` at most.
static knnlm_status run_on(const kn_sequence *q, const kn_datastore *store, size_t at, uint64_t position,
                           size_t max, size_t *run) {
    int32_t tokens[GAP];
    size_t count = kn_min(kn_min(q->tokens_sure - at, (size_t)(q->taking.count - position)), max);
    KN_TRY(kn_datastore_tokens(store, q->taking.entry + position, count, tokens));
    for (*run = 0; *run < count && tokens[*run] == token_at(q, at + *run);) ++*run;
    return KNNLM_OK;
}

static size_t count_standing(const kn_sequence *q) {
    size_t count = 0;
    for (size_t i = q->taking.first; i < q->taking.end; i++) count += q->notes[i].stands;
    return count;
}

// Whether the passage goes on with token `at`, which is the document's at `position`.
static knnlm_status judge_bridge(const kn_sequence *q, const kn_datastore *store, size_t at,
                                 uint64_t position, verdict *out) {
    const kn_taking *t = &q->taking;
    size_t others = at - t->end, skipped = (size_t)(position - t->last - 1), run = 0;
    while (others && skipped) { // what stands before it is no part of the gap
        int32_t token;
        KN_TRY(kn_datastore_tokens(store, t->entry + t->last + skipped, 1, &token));
        if (token != token_at(q, t->end + others - 1)) break;
        others--;
        skipped--;
        run++;
    }
    size_t gap = kn_max(others, skipped), needed = kn_max(gap, 2), more;
    KN_TRY(run_on(q, store, at, position, needed, &more));
    bool known = is_finished(q) || at + more < q->tokens_sure || position + more >= t->count;
    *out = count_standing(q) < gap ? NO : run + more >= needed ? YES : known ? NO : WAIT;
    return KNNLM_OK;
}

static knnlm_status bridge(kn_sequence *q, const kn_mixture *m, verdict *out) {
    kn_taking *t = &q->taking;
    const kn_datastore *store = store_of(q, m);
    const kn_place *place = NULL;
    size_t at, first;
    *out = NO;
    for (at = t->end; at <= t->end + GAP && *out == NO; at++) {
        if (at == q->tokens_sure) *out = is_finished(q) ? NO : WAIT;
        if (at == q->tokens_sure) return KNNLM_OK;
        place = find_bridge(q, at);
        if (place) KN_TRY(judge_bridge(q, store, at, place->id - t->entry, out));
    }
    if (*out != YES) return KNNLM_OK;
    uint64_t position = place->id - t->entry;
    stand(q, --at, position);
    KN_TRY(reach_back(q, store, at, position, t->end, t->last + 1, &first));
    t->end = at + 1;
    t->last = position;
    return KNNLM_OK;
}

// *going: there is more to do now.
static knnlm_status grow(kn_sequence *q, const kn_mixture *m, bool *going) {
    kn_taking *t = &q->taking;
    bool stands;
    verdict bridged;
    *going = is_finished(q);
    if (t->end == q->tokens_sure) return *going ? end(q, m) : KNNLM_OK;
    *going = true;
    KN_TRY(next_stands(q, m, &stands));
    if (stands) stand(q, t->end++, ++t->last);
    if (!stands) KN_TRY(move(q, m, &stands));
    if (stands) return KNNLM_OK;
    KN_TRY(bridge(q, m, &bridged));
    *going = bridged != WAIT;
    return bridged == NO ? end(q, m) : KNNLM_OK;
}

knnlm_status kn_passages_advance(kn_sequence *q, const kn_mixture *m) {
    size_t before = seen(q);
    for (bool going = true; going;) {
        if (q->taking.open)
            KN_TRY(grow(q, m, &going));
        else if ((going = q->looked < q->tokens_sure))
            KN_TRY(look(q, m));
    }
    if (q->taking.open) KN_TRY(tell(q, m, false));
    forget_passed(q, before);
    return KNNLM_OK;
}

size_t kn_passages_settled(const kn_sequence *q) {
    const kn_taking *t = &q->taking;
    if (is_finished(q)) return q->tokens_sure;
    if (t->open && t->source) {
        const kn_source *s = &q->sources[t->source - 1];
        return s->first + s->tokens;
    }
    size_t reached = q->looked > REACH ? q->looked - REACH : 0;
    return t->open ? t->first : kn_max(reached, q->passed);
}

void kn_passages_break(kn_sequence *q) {
    for (size_t i = 0; i < q->note_count; i++) forget_places(&q->notes[i]);
    for (size_t i = q->tokens_sure; i < q->note_count; i++) q->notes[i].carried = false;
    q->taking = (kn_taking){0};
    q->looked = q->passed = q->tokens_sure;
}

void kn_passages_free(kn_sequence *q) {
    for (size_t i = 0; i < q->note_count; i++) forget_places(&q->notes[i]);
    for (size_t i = 0; i < q->source_count; i++) {
        kn_source *s = &q->sources[i];
        free(s->before);
        free(s->text);
        free(s->after);
        free(s->store_path);
        free(s->document);
    }
    free(q->sources);
    free(q->notes);
}
