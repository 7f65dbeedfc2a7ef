// /v1/completions and /v1/chat/completions: a request becomes texts to be scored (echo with logprobs) and
// sequences to be generated; what comes of them becomes choices, at the end or chunk by chunk.
#include "serve/completion.h"
#include "serve/replies.h"
#include "serve/routes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PROMPTS_OF_FULL_LENGTH = 16 }; // of a request
enum { CHAT_TOKENS = 1024 };          // of an answer whose length is not given

// ---------------------------------------------------------------- tasks

static bool scores(const kn_completion *a) {
    return a->r.echo && a->r.logprobs >= 0;
}

static bool plain_sampling(const kn_completion_request *r) {
    const kn_sampling *s = &r->sampling;
    return s->temperature == 0 && s->repeat_penalty == 1 && s->dry_multiplier == 0 &&
           s->presence_penalty == 0 && s->frequency_penalty == 0 && !r->bias_count;
}

// Harnesses score a prompt and ask for one token more, which they throw away: where it is the most probable
// one, it falls off when the prompt is scored, and the prompt is read once.
// The scoring window must show it as much as generation would.
static bool next_falls_off(const kn_completion *a) {
    size_t window = (size_t)kn_lm_describe(a->model->lm)->window;
    for (size_t i = 0; i < a->r.prompt_count; i++)
        if (a->prompts[i].count + 1 > window) return false;
    return scores(a) && a->r.max_tokens == 1 && a->r.best_of == 1 && plain_sampling(&a->r) &&
           a->r.stop_count == 0 && !a->r.knn.explain && !kn_served_has_cache(a->model->served);
}

static bool make_score(kn_completion *a, size_t prompt, kn_request_task *t, kn_http_error *err) {
    const kn_read_prompt *p = &a->prompts[prompt];
    size_t top = (size_t)a->r.logprobs, cells = (p->count + 1) * top + 1;
    *t = (kn_request_task){.kind = KN_REQUEST_SCORE, .tokens = p->tokens, .count = p->count};
    t->scoring = (kn_score_text){.top = top,
                                 .results = kn_alloc(p->count + 1, sizeof(kn_score_result)),
                                 .ranked = kn_alloc(cells, sizeof(int32_t)),
                                 .ranked_p = kn_alloc(cells, sizeof(double)),
                                 .own_p = kn_alloc(p->count + 1, sizeof(double))};
    t->next_wanted = next_falls_off(a);
    if (!t->scoring.results || !t->scoring.ranked || !t->scoring.ranked_p || !t->scoring.own_p)
        return kn_http_error_memory(err);
    return kn_served_select(a->model->served, &a->r.knn, false, &t->selection, err) &&
           kn_served_select(a->model->served, &a->r.knn, true, &t->next_selection, err);
}

static bool make_sequence(kn_completion *a, size_t prompt, size_t choice, kn_request_task *t,
                          kn_http_error *err) {
    const kn_read_prompt *p = &a->prompts[prompt];
    *t = (kn_request_task){.kind = KN_REQUEST_GENERATE, .tokens = p->tokens, .count = p->count};
    t->options =
        (kn_generate_options){.sampling = a->r.sampling,
                              .seed = a->r.seed + (a->r.seed_given ? choice : prompt * a->r.best_of + choice),
                              .tokens = a->r.max_tokens,
                              .stops = a->r.stops,
                              .stop_count = a->r.stop_count,
                              .biases = a->r.biases,
                              .bias_count = a->r.bias_count,
                              .begin_with_space = p->space,
                              .top = a->r.logprobs > 0 ? (size_t)a->r.logprobs : 0,
                              .sources = a->r.knn.explain,
                              .around = 24,
                              .no_carry = !a->r.knn.carry};
    t->tokens_wanted = a->r.logprobs >= 0 || a->r.knn.explain;
    return kn_served_select(a->model->served, &a->r.knn, true, &t->selection, err);
}

static bool make_tasks(kn_completion *a, kn_http_error *err) {
    bool generates = a->r.max_tokens > 0 && !next_falls_off(a);
    size_t prompts = a->r.prompt_count, n = a->r.best_of;
    a->choices = kn_alloc(prompts * n, sizeof *a->choices);
    a->tasks = kn_alloc(prompts * (n + 1), sizeof *a->tasks);
    if (!a->choices || !a->tasks) return kn_http_error_memory(err);
    if (!kn_exchange_take_choice(a->x, &a->r.knn, prompts * (n + 1), err)) return false;
    for (size_t p = 0; p < prompts && scores(a); p++)
        if (!make_score(a, p, &a->tasks[a->task_count++], err)) return false;
    a->score_count = a->task_count;
    for (size_t i = 0; i < prompts * n; i++) {
        kn_choice *choice = &a->choices[a->choice_count++];
        *choice = (kn_choice){.number = i, .prompt = i / n, .space = a->prompts[i / n].space};
        if (!generates) continue;
        choice->task = &a->tasks[a->task_count++];
        if (!make_sequence(a, i / n, i % n, choice->task, err)) return false;
    }
    return true;
}

// Many prompts are one request, which others wait for.
static bool check_all(const kn_completion *a, kn_http_error *err) {
    size_t sum = 0, max = PROMPTS_OF_FULL_LENGTH * a->server->o.max_tokens;
    for (size_t i = 0; i < a->r.prompt_count; i++)
        sum += a->prompts[i].count + a->r.best_of * a->r.max_tokens;
    return sum <= max ||
           kn_http_error_set(err, 400, "context_length_exceeded", "prompt",
                             "all prompts and answers have %zu tokens: at most %zu in a request", sum, max);
}

// Bytes of an entry of "logprobs".
static size_t cost_of_entry(const kn_completion *a) {
    if (a->r.chat) return (1 + (size_t)a->r.logprobs) * KN_COST_CHAT_ENTRY;
    return KN_COST_LOGPROB + (size_t)a->r.logprobs * KN_COST_TOP;
}

static size_t cost_of_generated(const kn_completion *a) {
    size_t bytes = KN_COST_CHUNK, top = a->r.logprobs > 0 ? (size_t)a->r.logprobs : 0;
    if (a->r.logprobs >= 0 || a->r.knn.explain) bytes += KN_COST_CHUNK_NUMBERS + top * KN_COST_CHUNK_TOP;
    if (a->r.logprobs >= 0) bytes += cost_of_entry(a);
    return bytes + (a->r.knn.explain ? KN_COST_SOURCE : 0);
}

// What all of it will take, before any of it is done. Sums are far below 2^64: check_all has bounded the
// tokens.
static bool take_memory(kn_completion *a, kn_http_error *err) {
    size_t prompts = a->r.prompt_count, n = a->r.best_of, tokens = prompts, text = 0;
    for (size_t i = 0; i < prompts; i++) {
        tokens += a->prompts[i].count;
        text += a->prompts[i].size;
    }
    size_t scored = scores(a) ? tokens * (sizeof(kn_score_result) + 8 + 12 * (size_t)a->r.logprobs) : 0;
    size_t echoed = scores(a) ? tokens * n * cost_of_entry(a) : 0;
    size_t bytes =
        scored + echoed + text * n * KN_COST_TEXT + prompts * n * a->r.max_tokens * cost_of_generated(a);
    if (kn_account_expect(&a->x->account, bytes)) return true;
    return kn_account_error(&a->x->account, a->r.logprobs >= 0 ? "logprobs" : "max_tokens", err);
}

static bool read_prompt(kn_completion *a, size_t i, kn_http_error *err) {
    if (a->r.chat) return kn_chat_read(a, &a->prompts[i], err);
    return kn_prompt_read(a->x, &a->r.prompts[i], a->r.echo ? KN_PROMPT_TEXT : KN_PROMPT_CONTINUED, "prompt",
                          &a->prompts[i], err);
}

// Of an answer whose length nobody gave: what is left, but no more than people read.
static void choose_length(kn_completion *a) {
    size_t max = a->server->o.max_tokens, used = a->prompts[0].count;
    if (a->r.max_tokens == 0 && a->r.chat) a->r.max_tokens = kn_min(CHAT_TOKENS, max > used ? max - used : 1);
}

static bool read_prompts(kn_completion *a, kn_http_error *err) {
    a->prompts = kn_alloc(a->r.prompt_count, sizeof *a->prompts);
    if (!a->prompts) return kn_http_error_memory(err);
    for (size_t i = 0; i < a->r.prompt_count; i++) {
        if (!read_prompt(a, i, err)) return false;
        choose_length(a);
        size_t all = a->prompts[i].count + a->r.max_tokens;
        if (all > a->server->o.max_tokens)
            return kn_http_error_set(
                err, 400, "context_length_exceeded", "max_tokens",
                "a prompt of %zu tokens and 'max_tokens' of %zu: together at most %zu here",
                a->prompts[i].count, a->r.max_tokens, a->server->o.max_tokens);
    }
    return check_all(a, err) && take_memory(a, err);
}

static bool check_biases(const kn_completion *a, kn_http_error *err) {
    int32_t vocabulary = kn_lm_describe(a->model->lm)->vocabulary;
    for (size_t i = 0; i < a->r.bias_count; i++)
        if (a->r.biases[i].token >= vocabulary)
            return kn_http_error_set(err, 400, NULL, "logit_bias",
                                     "'logit_bias': token %d is not in the vocabulary of %d",
                                     a->r.biases[i].token, vocabulary);
    return true;
}

static void name(kn_completion *a) {
    uint64_t bits[2] = {0, 0};
    if (getrandom(bits, sizeof bits, 0) < 0) bits[0] = (uint64_t)(uintptr_t)a;
    snprintf(a->id, sizeof a->id, "%s-%016llx", a->r.chat ? "chatcmpl" : "cmpl", (unsigned long long)bits[0]);
    if (!a->r.seed_given) a->r.seed = bits[1];
    a->created = (int64_t)time(NULL);
}

typedef bool parser(const json_t *root, kn_completion_request *out, kn_http_error *err);

static kn_completion *open_completion(kn_exchange *x, parser *parse, kn_http_error *err) {
    kn_completion *a = kn_alloc(1, sizeof *a);
    if (!a) {
        kn_http_error_memory(err);
        return NULL;
    }
    *a = (kn_completion){.x = x, .server = x->server, .model = x->model, .root = json_incref(x->request)};
    kn_request_job_init(&a->job);
    bool parsed = parse(a->root, &a->r, err) && check_biases(a, err);
    if (parsed) name(a);
    if (parsed && read_prompts(a, err) && make_tasks(a, err)) return a;
    kn_completion_close(a);
    return NULL;
}

void kn_completion_close(void *completion) {
    kn_completion *a = completion;
    if (a->submitted) kn_request_job_end(a->model->engine, &a->job);
    for (size_t i = 0; i < a->task_count; i++) {
        free(a->tasks[i].scoring.results);
        free(a->tasks[i].scoring.ranked);
        free(a->tasks[i].scoring.ranked_p);
        free(a->tasks[i].scoring.own_p);
        kn_chunk_queue_free(&a->tasks[i].chunks);
    }
    for (size_t i = 0; a->prompts && i < a->r.prompt_count; i++) kn_read_prompt_free(&a->prompts[i]);
    kn_request_job_destroy(&a->job);
    kn_completion_free(&a->r);
    json_decref(a->root);
    free(a->prompts);
    free(a->choices);
    free(a->tasks);
    free(a->out);
    free(a);
}

// ---------------------------------------------------------------- the answer in one

static json_t *whole_choice(kn_completion *a, kn_choice *choice, bool *fine) {
    kn_slice slice = kn_slice_open(a);
    kn_chunk *chunk;
    *fine = true;
    if (a->r.echo) *fine = kn_slice_prompt(a, choice, &slice);
    while (*fine && (*fine = kn_choice_take(a, choice, &chunk)) && chunk) {
        *fine = kn_slice_chunk(a, choice, chunk, &slice);
        kn_chunk_free(chunk);
    }
    if (*fine && !choice->finish) choice->finish = "length"; // nothing was to be generated
    *fine &= !a->x->account.shortage;
    return kn_slice_close(a, choice, &slice);
}

static double merit(const kn_choice *choice) {
    return choice->task ? choice->task->mean_logprob : 0;
}

static int by_merit(const void *a, const void *b) {
    double x = merit(a), y = merit(b);
    return x > y ? -1 : x < y ? 1 : 0;
}

// Of each prompt the best come first, and get the numbers of those that were asked for.
static void rank_choices(kn_completion *a) {
    size_t n = a->r.choices, of = a->r.best_of;
    if (of == n) return;
    for (size_t p = 0; p < a->r.prompt_count; p++) {
        qsort(a->choices + p * of, of, sizeof *a->choices, by_merit);
        for (size_t i = 0; i < n; i++) a->choices[p * of + i].number = p * n + i;
    }
}

static json_t *whole(kn_completion *a) {
    json_t *choices = json_array();
    bool fine = true;
    rank_choices(a);
    for (size_t i = 0; i < a->choice_count && fine; i++)
        if (i % a->r.best_of < a->r.choices)
            json_array_append_new(choices, whole_choice(a, &a->choices[i], &fine));
    json_t *answer = fine ? kn_completion_frame(a, choices, true) : NULL;
    if (!fine) json_decref(choices);
    return answer;
}

static enum MHD_Result complete(kn_exchange *x, parser *parse) {
    kn_http_error err = {0};
    kn_completion *a = open_completion(x, parse, &err);
    if (!a) return kn_reply_error(x, &err);
    if (a->r.stream) return kn_completion_stream(a);
    bool done = a->task_count == 0 || kn_exchange_run(x, &a->job, a->tasks, a->task_count, &err);
    enum MHD_Result result = done ? kn_reply(x, 200, whole(a)) : kn_reply_error(x, &err);
    kn_completion_close(a);
    return result;
}

enum MHD_Result kn_answer_completions(kn_exchange *x) {
    return complete(x, kn_completion_parse);
}

enum MHD_Result kn_answer_chat(kn_exchange *x) {
    return complete(x, kn_chat_parse);
}
