// A text that grows: its tokens, where it ends, what of it is final.
#include "generate/sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- opening

kn_generate_options kn_generate_options_default(void) {
    return (kn_generate_options){.sampling = kn_sampling_default(), .tokens = 128, .around = 12};
}

static knnlm_status take_prompt(kn_sequence *s, const int32_t *prompt, size_t count) {
    int32_t vocabulary = kn_lm_describe(s->lm)->vocabulary;
    for (size_t i = 0; i < count; i++)
        if (prompt[i] < 0 || prompt[i] >= vocabulary)
            return kn_fail(KNNLM_EINVAL, "token %d at position %zu of the prompt: the vocabulary has %d",
                           prompt[i], i, vocabulary);
    KN_TRY(kn_grow(&s->history, &s->history_capacity, count, sizeof *s->history));
    if (count) memcpy(s->history, prompt, count * sizeof *prompt);
    s->prompt = s->count = count;
    return KNNLM_OK;
}

static knnlm_status take_biases(kn_sequence *s, const kn_generate_options *o) {
    int32_t vocabulary = kn_lm_describe(s->lm)->vocabulary;
    for (size_t i = 0; i < o->bias_count; i++)
        if (o->biases[i].token < 0 || o->biases[i].token >= vocabulary)
            return kn_fail(KNNLM_EINVAL, "a bias of token %d: the vocabulary has %d", o->biases[i].token,
                           vocabulary);
    s->biases = kn_alloc(o->bias_count, sizeof *s->biases);
    if (!s->biases) return KNNLM_ENOMEM;
    if (o->bias_count) memcpy(s->biases, o->biases, o->bias_count * sizeof *s->biases);
    return KNNLM_OK;
}

// What the context holds beside the start token and the tokens to come, of which the last is not read; but
// half of the context at least is the prompt's.
static void fit_prompt(kn_sequence *s) {
    size_t context = kn_session_room(s->lm), to_come = kn_max(s->options.tokens, 1) - 1;
    size_t kept = kn_min(s->count, context - 1 - kn_min(to_come, (context - 1) / 2));
    s->next = s->count - kept;
    s->cut = kept < s->count;
}

static knnlm_status init(kn_sequence *s, const kn_generate_options *o, const int32_t *prompt, size_t count) {
    KN_TRY(kn_sampling_check(&o->sampling));
    KN_TRY(kn_stops_init(&s->stops, o->stops, o->stop_count));
    KN_TRY(take_biases(s, o));
    KN_TRY(take_prompt(s, prompt, count));
    KN_TRY(kn_text_append(&s->text, "", 0));
    fit_prompt(s);
    if (o->tokens == 0) s->finish = KNNLM_FINISH_LENGTH;
    return kn_session_open(s->lm, &s->session);
}

knnlm_status kn_sequence_open(kn_lm *lm, const kn_generate_options *o, const int32_t *prompt, size_t count,
                              kn_sequence **out) {
    kn_sequence *s = kn_alloc(1, sizeof *s);
    if (!s) return KNNLM_ENOMEM;
    s->lm = lm;
    s->kept = 1;
    s->options = *o;
    s->options.stops = NULL;
    s->options.biases = NULL;
    s->options.top = kn_min(o->top, KN_DISTRIBUTION_TOP);
    s->random = (kn_random){kn_mix64(o->seed)}; // seeds that follow each other are not alike
    knnlm_status status = init(s, o, prompt, count);
    if (status == KNNLM_OK)
        *out = s;
    else
        kn_sequence_close(s);
    return status;
}

void kn_sequence_close(kn_sequence *s) {
    if (!s) return;
    for (size_t i = 0; s->tokens && i < s->count - s->prompt; i++) {
        free((void *)s->tokens[i].top);
        free((void *)s->tokens[i].top_p);
    }
    free((void *)s->end.top);
    free((void *)s->end.top_p);
    kn_session_close(s->session);
    kn_passages_free(s);
    kn_states_free(&s->states);
    free(s->followers);
    kn_stops_free(&s->stops);
    free(s->biases);
    kn_text_free(&s->text);
    free(s->history);
    free(s->tokens);
    free(s);
}

// ---------------------------------------------------------------- asking

knnlm_finish kn_sequence_finish(const kn_sequence *s) {
    return s->finish;
}

const kn_generated *kn_sequence_tokens(const kn_sequence *s, size_t *count) {
    *count = s->tokens_final;
    return s->tokens;
}

const kn_generated *kn_sequence_end(const kn_sequence *s) {
    return s->ended ? &s->end : NULL;
}

const char *kn_sequence_text(const kn_sequence *s, size_t *size) {
    *size = s->text_final;
    return s->text.data;
}

const kn_source *kn_sequence_sources(const kn_sequence *s, size_t *count) {
    size_t n = s->source_count;
    while (n > 0 && s->sources[n - 1].first >= s->tokens_final) n--;
    *count = n;
    return s->sources;
}

size_t kn_sequence_sources_ended(const kn_sequence *s) {
    size_t count;
    kn_sequence_sources(s, &count);
    return kn_min(count, s->taking.source ? s->taking.source - 1 : s->source_count);
}

size_t kn_sequence_generated(const kn_sequence *s) {
    return s->count - s->prompt;
}

bool kn_sequence_cut(const kn_sequence *s) {
    return s->cut;
}

// ---------------------------------------------------------------- one more token

static knnlm_status note_top(const kn_sequence *s, const kn_distribution *g, kn_generated *out) {
    size_t max = s->options.top;
    if (max == 0) return KNNLM_OK;
    int32_t *top = kn_alloc(max, sizeof *top);
    double *top_p = kn_alloc(max, sizeof *top_p);
    out->top = top;
    out->top_p = top_p;
    if (!top || !top_p) return KNNLM_ENOMEM;
    out->top_count = kn_distribution_top(g, max, top);
    for (size_t i = 0; i < out->top_count; i++) top_p[i] = kn_distribution_logprob(g, top[i]);
    return KNNLM_OK;
}

static knnlm_status note_numbers(const kn_sequence *s, int32_t token, const kn_distribution *g,
                                 kn_generated *out) {
    *out = (kn_generated){.token = token,
                          .p = kn_distribution_logprob(g, token),
                          .lm = (double)g->lm[token],
                          .knn = g->mixed ? log(g->knn[token]) : NAN,
                          .lambda = g->lambda,
                          .nearest = g->nearest,
                          .entropy = g->entropy,
                          .offset = s->text.size};
    return note_top(s, g, out);
}

static knnlm_status append_token(kn_sequence *s, int32_t token, const kn_distribution *g) {
    size_t n = s->count - s->prompt;
    KN_TRY(kn_grow(&s->history, &s->history_capacity, s->count + 1, sizeof *s->history));
    KN_TRY(kn_grow(&s->tokens, &s->token_capacity, n + 1, sizeof *s->tokens));
    s->history[s->count++] = token;
    return note_numbers(s, token, g, &s->tokens[n]);
}

// Words that are joined by spaces have none before the first of all.
static int32_t token_before(const kn_sequence *s) {
    const kn_tokenizer *t = kn_lm_tokenizer(s->lm);
    if (s->count > 1) return s->history[s->count - 2];
    return kn_tokenizer_joins_with_spaces(t) ? -1 : kn_tokenizer_start(t);
}

static knnlm_status append_text(kn_sequence *s, int32_t token) {
    kn_generated *last = &s->tokens[s->count - s->prompt - 1];
    char *piece;
    size_t size;
    KN_TRY(kn_piece_after(kn_lm_tokenizer(s->lm), token_before(s), token, &piece, &size));
    knnlm_status status = kn_text_append(&s->text, piece, size);
    free(piece);
    last->size = s->text.size - last->offset;
    return status;
}

// ---------------------------------------------------------------- what is final

// Tokens whose text is, and that begin before what is held back: one without text may be the first that a
// stop takes away.
static void settle(kn_sequence *s) {
    size_t count = s->count - s->prompt, held = kn_stops_begun(&s->stops, &s->text);
    s->text_sure = s->text.size - held;
    if (held == 0 && s->text.begun_size == 0) s->tokens_sure = count;
    while (s->tokens_sure < count) {
        const kn_generated *t = &s->tokens[s->tokens_sure];
        if (t->offset >= s->text_sure || t->offset + t->size > s->text_sure) break;
        s->tokens_sure++;
    }
}

static void settle_all(kn_sequence *s) {
    s->text_sure = s->text.size;
    s->tokens_sure = s->count - s->prompt;
}

// The text ends at byte `at`.
static void stop_at(kn_sequence *s, size_t at) {
    s->finish = KNNLM_FINISH_STOP;
    s->text.begun_size = 0;
    s->text.size = s->text_sure = at;
    s->text.data[at] = 0;
    while (s->tokens_sure < s->count - s->prompt && s->tokens[s->tokens_sure].offset < at) s->tokens_sure++;
    if (s->tokens_sure == 0) return;
    kn_generated *last = &s->tokens[s->tokens_sure - 1];
    last->size = kn_min(last->size, at - last->offset);
}

static knnlm_status end_text(kn_sequence *s, knnlm_finish finish) {
    size_t count = s->count - s->prompt;
    KN_TRY(kn_text_end(&s->text));
    if (count) s->tokens[count - 1].size = s->text.size - s->tokens[count - 1].offset;
    s->finish = finish;
    settle_all(s);
    return KNNLM_OK;
}

static knnlm_status look_for_end(kn_sequence *s) {
    size_t stop = kn_stops_find(&s->stops, &s->text, s->text_sure);
    if (stop == SIZE_MAX && s->count - s->prompt == s->options.tokens)
        return end_text(s, KNNLM_FINISH_LENGTH);
    if (stop == SIZE_MAX)
        settle(s);
    else
        stop_at(s, stop);
    return KNNLM_OK;
}

// What is sure is final where nobody asks for sources, or those are known.
static knnlm_status publish(kn_sequence *s, const kn_mixture *m) {
    size_t settled = s->tokens_sure;
    if (s->options.sources) {
        KN_TRY(kn_passages_advance(s, m));
        settled = kn_passages_settled(s);
    }
    s->tokens_final = kn_max(s->tokens_final, settled);
    // What was final stays so: a token whose beginning was, while its end might have begun a stop, may wait
    // for its source.
    size_t final = s->tokens_final == s->tokens_sure ? s->text_sure : s->tokens[s->tokens_final].offset;
    s->text_final = kn_max(s->text_final, final);
    return KNNLM_OK;
}

static knnlm_status take_end(kn_sequence *s, int32_t token, const kn_step *step) {
    KN_TRY(end_text(s, KNNLM_FINISH_STOP));
    s->ended = true;
    KN_TRY(note_numbers(s, token, step->distribution, &s->end));
    return publish(s, step->mixture);
}

// Who gave the token: its passage and its followers are among them.
static knnlm_status note_origin(kn_sequence *s, const kn_step *step) {
    kn_place *places = NULL;
    size_t count = 0;
    if (!s->options.sources && s->options.no_carry) return KNNLM_OK;
    KN_TRY(kn_places_find(s, step, &places, &count));
    knnlm_status status = s->options.no_carry ? KNNLM_OK : kn_follow_take(s, step, places, count);
    if (status == KNNLM_OK && s->options.sources) return kn_passages_note(s, places, count);
    free(places);
    return status;
}

knnlm_status kn_sequence_take(kn_sequence *s, int32_t token, const kn_step *step) {
    if (!s->options.ignore_end && kn_lm_ends(s->lm, token)) return take_end(s, token, step);
    KN_TRY(append_token(s, token, step->distribution));
    KN_TRY(append_text(s, token));
    KN_TRY(note_origin(s, step));
    KN_TRY(look_for_end(s));
    return publish(s, step->mixture);
}

// ---------------------------------------------------------------- stores that change

static uint64_t seal_of(const kn_mixture *m) {
    const kn_mixture_info *info = kn_mixture_describe(m);
    uint64_t seal = kn_mix64(info->count);
    for (size_t i = 0; i < info->count; i++) {
        const kn_store_info *store = info->stores[i].store;
        for (const char *c = store->path; *c; c++) seal = kn_mix64(seal ^ (unsigned char)*c);
        seal = kn_mix64(seal ^ store->generation);
    }
    return seal;
}

// The server opens a store anew when it changes, and compaction gives its entries other numbers.
void kn_sequence_check_stores(kn_sequence *s, const kn_mixture *m) {
    uint64_t seal = seal_of(m);
    if (seal == s->seal) return;
    s->seal = seal;
    s->follower_count = 0;
    s->ending = 0;
    kn_passages_break(s);
}
