// Sequences: the words are those that model and store would say one context after another, alone or many at a
// time; and where they end.
#include "generate_kit.h"

#include "base/utf8.h"
#include "generate/text.h"
#include "knn/next.h"

#define BYTES KN_SOURCE_DIR "/tests/golden/shared.model.gguf" // a byte-level BPE of 267 tokens, context 48
#define WORDS KN_SOURCE_DIR "/tests/golden/gpt2.model.gguf"   // words, context 72
#define SHORT KN_SOURCE_DIR "/tests/golden/cpu.model.gguf"    // words, context 40

static const char told[] =
    "The nearest neighbours of a context are the contexts that were followed by similar words. A store "
    "remembers every context, and the word that followed it: Zürich, São Paulo, 東京 and Kraków.\n",
                  other[] = "A store of another text remembers the nearest town, and who lived there before "
                            "the river was bridged.\n";

typedef struct fixture {
    char folder[64];
    kn_lm *small;
    kn_mixture *both;   // of told and other
    kn_mixture *listed; // of the same, in lists, keys projected
} fixture;

static int fixture_open(void **state) {
    fixture *d = calloc(1, sizeof *d);
    test_folder(d->folder, sizeof d->folder);
    write_text(d->folder, "told", told);
    write_text(d->folder, "other", other);
    build(d->folder, SMALL, "both.store", (const char *[]){"told", "other"}, 2, false, NULL);
    build(d->folder, SMALL, "listed.store", (const char *[]){"told", "other"}, 2, true, NULL);
    build(d->folder, SMALL, "elsewhere.store", (const char *[]){"told"}, 1, false, "output");
    d->small = open_model(SMALL);
    d->both = open_store(d->folder, d->small, "both.store", 0.6, 20);
    d->listed = open_store(d->folder, d->small, "listed.store", 0.6, 20);
    assert_int_equal(kn_mixture_describe(d->listed)->stores[0].looked, 3);
    *state = d;
    return 0;
}

static int fixture_close(void **state) {
    fixture *d = *state;
    char command[128];
    kn_mixture_close(d->both);
    kn_mixture_close(d->listed);
    kn_lm_close(d->small);
    snprintf(command, sizeof command, "rm -rf %s", d->folder);
    int code = system(command);
    free(d);
    return code;
}

static void assert_text(const kn_sequence *s, const char *expected) {
    size_t size;
    const char *text = kn_sequence_text(s, &size);
    if (size != strlen(expected) || strcmp(text, expected) != 0)
        fail_msg("the text is \"%s\", not \"%s\"", text, expected);
}

// What tokens say of the text is the text.
static void check_tiling(const kn_sequence *s) {
    size_t count, size, at = 0;
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    const char *text = kn_sequence_text(s, &size);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tokens[i].offset, at);
        at += tokens[i].size;
    }
    if (kn_sequence_finish(s) != KNNLM_FINISH_NOT) assert_int_equal(at, size);
    assert_true(at <= size);
    assert_int_equal(kn_utf8_valid(text, size), size);
}

// ---------------------------------------------------------------- words

// Each context guessed anew, by the model's windows rather than its sessions.
static void check_greedy(fixture *d, const kn_mixture *m) {
    kn_generate_options o = greedy(12);
    kn_tokens context = encode(d->small, "A store remembers");
    o.top = 3;
    o.no_carry = true;
    kn_sequence *s = generate(d->small, m, &o, "A store remembers");
    size_t count;
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    assert_int_equal(count, 12);
    for (size_t i = 0; i < count; i++) {
        kn_nexts *nexts;
        int32_t top[3];
        OK(kn_nexts_open(d->small, &(kn_context){context.ids, context.count, m}, 1, &nexts));
        const kn_next *next = kn_nexts_at(nexts, 0);
        const kn_generated *t = &tokens[i];
        assert_int_equal(kn_distribution_top(&next->distribution, 3, top), 3);
        assert_int_equal(t->token, top[0]);
        assert_int_equal(t->top_count, 3);
        assert_int_equal(t->top[0], t->token);
        assert_true(t->top_p[0] == t->p && t->top_p[1] <= t->p && t->top_p[2] <= t->top_p[1]);
        near(t->p, kn_distribution_logprob(&next->distribution, t->token));
        near(t->lm, (double)next->distribution.lm[t->token]);
        near(t->knn, log(next->distribution.knn[t->token]));
        near(t->entropy, next->distribution.entropy);
        near(t->nearest + 1, next->distribution.nearest + 1);
        near(t->lambda, next->distribution.lambda);
        OK(kn_tokens_push(&context, t->token, 0));
        kn_nexts_close(nexts);
    }
    check_tiling(s);
    kn_sequence_close(s);
    kn_tokens_free(&context);
}

static void greedy_words_are_the_best_guesses(void **state) {
    fixture *d = *state;
    check_greedy(d, d->both);
    check_greedy(d, d->listed);
}

static void the_model_alone_has_no_neighbours(void **state) {
    fixture *d = *state;
    kn_mixture *m = no_store(d->small);
    kn_generate_options o = greedy(3);
    o.sources = true;
    kn_sequence *s = generate(d->small, m, &o, "");
    size_t count;
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        assert_true(isnan(tokens[i].knn) && isnan(tokens[i].nearest) && tokens[i].lambda == 0);
        assert_true(tokens[i].p == tokens[i].lm && tokens[i].source == 0);
    }
    kn_sequence_sources(s, &count);
    assert_int_equal(count, 0);
    kn_sequence_close(s);
    kn_mixture_close(m);
}

// ---------------------------------------------------------------- many at a time

enum { MANY = 6 };

static kn_mixture *view(const kn_mixture *of, kn_view_options o) {
    kn_mixture *m;
    OK(kn_mixture_view(&of, 1, &o, &m));
    return m;
}

// Settings of their own for each.
static void open_views(fixture *d, kn_mixture **mixtures) {
    const kn_view_options same = {.lambda = NAN, .temperature = NAN, .fallback = -1};
    mixtures[0] =
        view(d->listed, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = 1});
    mixtures[1] = no_store(d->small);
    mixtures[2] = view(d->both, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 7, .fallback = -1});
    mixtures[3] = view(d->listed, same);
    mixtures[4] = view(d->both, (kn_view_options){.lambda = 0.9, .temperature = 3, .k = 0, .fallback = -1});
    mixtures[5] = view(d->both, (kn_view_options){.lambda = NAN, .temperature = NAN, .k = 0, .fallback = 1});
}

static void open_many(fixture *d, kn_sequence **sequences, kn_generate_options *options) {
    static const char *const prompts[MANY] = {"", "The", "A store", NULL, "The nearest town", "The"};
    char *longer = calloc(1, 16 * sizeof told); // more than two pieces
    for (int i = 0; i < 14; i++) strcat(longer, told);
    for (size_t i = 0; i < MANY; i++) {
        options[i] = kn_generate_options_default();
        options[i].tokens = 10 + 3 * i;
        options[i].seed = 5 + i % 5; // the last is as the first
        options[i].sources = i % 2;
        sequences[i] = begin(d->small, &options[i], prompts[i] ? prompts[i] : longer);
    }
    options[0].sampling.repeat_penalty = 1.2;
    free(longer);
}

// Each begins a step after the one before; those that are finished leave.
static void step_together(kn_lm *lm, kn_sequence **sequences, kn_mixture *const *mixtures) {
    kn_generator *g;
    OK(kn_generator_open(lm, MANY, &g));
    for (size_t begun = 1;; begun += begun < MANY) {
        kn_sequence *running[MANY];
        const kn_mixture *by[MANY];
        size_t n = 0;
        for (size_t i = 0; i < begun; i++) {
            if (kn_sequence_finish(sequences[i]) != KNNLM_FINISH_NOT) continue;
            running[n] = sequences[i];
            by[n++] = mixtures[i];
        }
        if (!n) break;
        OK(kn_generator_step(g, running, by, n));
    }
    kn_generator_times spent = kn_generator_spent(g);
    assert_true(spent.model > 0 && spent.search > 0 && spent.rest > 0);
    kn_generator_close(g);
}

static void check_same(const kn_sequence *a, const kn_sequence *b) {
    size_t count, other_count, size;
    const kn_generated *x = kn_sequence_tokens(a, &count), *y = kn_sequence_tokens(b, &other_count);
    assert_int_equal(count, other_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(x[i].token, y[i].token);
        assert_int_equal(x[i].source, y[i].source);
        assert_true(x[i].p == y[i].p && x[i].lambda == y[i].lambda && x[i].lm == y[i].lm);
    }
    assert_text(a, kn_sequence_text(b, &size));
}

static void together_as_alone(void **state) {
    fixture *d = *state;
    kn_mixture *mixtures[MANY];
    kn_sequence *together[MANY], *alone[MANY];
    kn_generate_options options[MANY];
    open_views(d, mixtures);
    open_many(d, together, options);
    step_together(d->small, together, mixtures);
    open_many(d, alone, options);
    for (size_t i = 0; i < MANY; i++) {
        finish(d->small, mixtures[i], alone[i]);
        check_same(together[i], alone[i]);
        check_tiling(alone[i]);
        kn_sequence_close(alone[i]);
        kn_sequence_close(together[i]);
        kn_mixture_close(mixtures[i]);
    }
}

// ---------------------------------------------------------------- contexts that are full

// The same rule, with a list of tokens in place of sessions.
static void check_overflow(kn_lm *lm, const kn_mixture *m, size_t prompt_size, size_t tokens_wanted) {
    int32_t context = kn_lm_describe(lm)->context, prompt[400], window[400];
    size_t kept, count, room = kn_min(tokens_wanted - 1, (size_t)(context - 1) / 2);
    kn_generate_options o = greedy(tokens_wanted);
    kn_sequence *s;
    o.ignore_end = true;
    for (size_t i = 0; i < prompt_size; i++) prompt[i] = (int32_t)(kn_mix64(i) % 30);
    OK(kn_sequence_open(lm, &o, prompt, prompt_size, &s));
    finish(lm, m, s);
    kept = kn_min(prompt_size, (size_t)context - 1 - room);
    assert_int_equal(kn_sequence_cut(s),
                     kept < prompt_size || 1 + kept + tokens_wanted - 1 > (size_t)context);
    memcpy(window, prompt + prompt_size - kept, kept * sizeof *window);
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    assert_int_equal(count, tokens_wanted);
    for (size_t i = 0; i < count; i++) {
        kn_nexts *nexts;
        int32_t best;
        OK(kn_nexts_open(lm, &(kn_context){window, kept, m}, 1, &nexts));
        const kn_next *next = kn_nexts_at(nexts, 0);
        assert_int_equal(kn_distribution_top(&next->distribution, 1, &best), 1);
        assert_int_equal(tokens[i].token, best);
        kn_nexts_close(nexts);
        window[kept++] = best;
        if (1 + kept > (size_t)context) {
            size_t half = (size_t)context / 2;
            memmove(window, window + kept - half, half * sizeof *window);
            kept = half;
        }
    }
    kn_sequence_close(s);
}

static void full_contexts_go_on(void **state) {
    (void)state;
    kn_lm *lm = open_model(SHORT);
    kn_mixture *m = no_store(lm);
    check_overflow(lm, m, 0, 130);
    check_overflow(lm, m, 39, 1);
    check_overflow(lm, m, 39, 2);
    check_overflow(lm, m, 300, 10);
    check_overflow(lm, m, 300, 100);
    kn_mixture_close(m);
    kn_lm_close(lm);
}

// ---------------------------------------------------------------- stops

// Where the text ends by the first token that completes one of the stops.
static size_t expected_end(const char *text, const kn_generated *tokens, size_t count,
                           const char *const *stops, size_t stop_count) {
    for (size_t i = 0; i < count; i++) {
        size_t end = tokens[i].offset + tokens[i].size, first = SIZE_MAX;
        for (size_t j = 0; j < stop_count; j++) {
            const char *at = memmem(text, end, stops[j], strlen(stops[j]));
            if (at) first = kn_min(first, (size_t)(at - text));
        }
        if (first != SIZE_MAX) return first;
    }
    return SIZE_MAX;
}

// Step by step what is final only grows, and never has more than the end will have.
static void check_stop(kn_lm *lm, const kn_mixture *m, kn_generate_options o, const kn_sequence *whole) {
    size_t count, size, seen = 0, seen_tokens = 0, now;
    const kn_generated *tokens = kn_sequence_tokens(whole, &count);
    const char *text = kn_sequence_text(whole, &size);
    size_t end = expected_end(text, tokens, count, o.stops, o.stop_count);
    kn_sequence *s = begin(lm, &o, "a");
    kn_generator *g;
    OK(kn_generator_open(lm, 1, &g));
    while (kn_sequence_finish(s) == KNNLM_FINISH_NOT) {
        OK(kn_generator_step(g, &s, &m, 1));
        const char *part = kn_sequence_text(s, &now);
        assert_true(now >= seen && now <= kn_min(end, size) && memcmp(part, text, now) == 0);
        seen = now;
        kn_sequence_tokens(s, &now);
        assert_true(now >= seen_tokens);
        seen_tokens = now;
        check_tiling(s);
    }
    assert_int_equal(kn_sequence_finish(s), end == SIZE_MAX ? KNNLM_FINISH_LENGTH : KNNLM_FINISH_STOP);
    assert_int_equal(seen, kn_min(end, size));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(i < seen_tokens, tokens[i].offset < kn_min(end, size));
    kn_generator_close(g);
    kn_sequence_close(s);
}

// Whole characters from about there; at least one, and no NUL.
static void copy_characters(const char *text, size_t about, char *out) {
    size_t from = 0, to;
    while (((unsigned char)text[from] & 0xC0) == 0x80) from++;
    to = from + 1;
    while (to < from + about || ((unsigned char)text[to] & 0xC0) == 0x80) to++;
    while (((unsigned char)text[to] & 0xC0) == 0x80) to++;
    memcpy(out, text + from, to - from);
    if (!*out) strcpy(out, "x");
}

// Bytes that mean nothing: characters are broken, and made of several tokens.
static void texts_end_before_stops(void **state) {
    kn_lm *lm = open_model(BYTES);
    kn_mixture *m = no_store(lm);
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        kn_random random = {seed};
        kn_generate_options o = kn_generate_options_default();
        o.sampling = (kn_sampling){.temperature = 1, .top_p = 1, .repeat_penalty = 1};
        o.seed = seed;
        o.tokens = 40;
        o.ignore_end = true;
        kn_sequence *whole = generate(lm, m, &o, "a");
        size_t size;
        const char *text = kn_sequence_text(whole, &size);
        check_tiling(whole);
        for (int i = 0; i < 6; i++) {
            char stops[2][24] = {{0}};
            const char *list[] = {stops[0], stops[1]};
            for (int j = 0; j < 2; j++) {
                size_t from = kn_random_below(&random, size - 12), length = kn_random_below(&random, 9);
                copy_characters(text + from, length, stops[j]);
                if (i % 3 == 2) strcat(stops[j], "~"); // mostly one that does not come
            }
            o.stops = list;
            o.stop_count = 1 + (size_t)i % 2;
            check_stop(lm, m, o, whole);
        }
        kn_sequence_close(whole);
    }
    kn_mixture_close(m);
    kn_lm_close(lm);
}

static void assert_characters(const char *bytes, size_t size, const char *expected) {
    kn_text whole = {0}, pieces = {0};
    OK(kn_text_append(&whole, bytes, size));
    OK(kn_text_end(&whole));
    assert_string_equal(whole.data, expected);
    for (size_t i = 0; i < size; i++) {
        OK(kn_text_append(&pieces, bytes + i, 1));
        assert_true(memcmp(pieces.data ? pieces.data : "", expected, pieces.size) == 0);
    }
    OK(kn_text_end(&pieces));
    assert_string_equal(pieces.data, expected);
    kn_text_free(&whole);
    kn_text_free(&pieces);
}

#define NONE "\xEF\xBF\xBD"
static void broken_characters_are_replaced(void **state) {
    (void)state;
#define GIVES(bytes, expected) assert_characters(bytes, sizeof bytes - 1, expected)
    GIVES("plain", "plain");
    GIVES("Zürich 東京 \xF0\x9F\x98\x80", "Zürich 東京 \xF0\x9F\x98\x80");
    GIVES("a\x80z", "a" NONE "z");
    GIVES("a\xE6\x9D", "a" NONE);
    GIVES("a\xE6\x9Dz", "a" NONE "z");
    GIVES("\xE0\x80\x80", NONE NONE NONE);          // overlong
    GIVES("\xED\xA0\x80", NONE NONE NONE);          // a surrogate
    GIVES("\xF4\x90\x80\x80", NONE NONE NONE NONE); // beyond the last
    GIVES("\xF0\x9F\x98\xE6\x9D\xB1", NONE "東");
    GIVES("\xC0\xAF\xFF\xC3", NONE NONE NONE NONE);
#undef GIVES
}

// ---------------------------------------------------------------- words and line ends

// A model of words ends its text at the end of a line; the space between words belongs to the second.
static void words_are_joined_and_lines_end(void **state) {
    fixture *d = *state;
    kn_generate_options o = greedy(7);
    write_text(d->folder, "words", "w3 w5 w7 w9\nw11 w5 w13 w2\n");
    build(d->folder, WORDS, "words.store", (const char *[]){"words"}, 1, false, NULL);
    kn_lm *lm = open_model(WORDS);
    kn_mixture *m = open_store(d->folder, lm, "words.store", 1, 1e-6);
    kn_sequence *s = generate(lm, m, &o, "w3 w5");
    assert_text(s, " w7 w9");
    assert_int_equal(kn_sequence_finish(s), KNNLM_FINISH_STOP);
    check_tiling(s);
    kn_sequence_close(s);
    s = generate(lm, m, &o, "");
    assert_text(s, "w3 w5 w7 w9");
    kn_sequence_close(s);
    o.ignore_end = true;
    s = generate(lm, m, &o, "w3 w5");
    assert_text(s, " w7 w9\nw11 w5 w13 w2");
    assert_int_equal(kn_sequence_finish(s), KNNLM_FINISH_LENGTH);
    check_tiling(s);
    kn_sequence_close(s);
    kn_mixture_close(m);
    kn_lm_close(lm);
}

// ---------------------------------------------------------------- DRY

// Of three tokens that were there before in this order: the last, as a place in `all`; 0: there are none.
static size_t find_repeat(const kn_tokens *all, size_t from) {
    for (size_t i = kn_max(from, 3); i < all->count; i++)
        for (size_t j = 2; j < i; j++)
            if (memcmp(all->ids + j - 2, all->ids + i - 2, 3 * sizeof *all->ids) == 0) return i;
    return 0;
}

// Prompt and text.
static kn_tokens greedy_tokens(kn_lm *lm, const kn_mixture *m, const char *prompt, double multiplier) {
    kn_generate_options o = greedy(60);
    kn_tokens all = encode(lm, prompt);
    size_t count;
    o.ignore_end = true;
    o.sampling.dry_multiplier = multiplier;
    o.sampling.dry_base = 1.75;
    o.sampling.dry_allowed_length = 2;
    kn_sequence *s = generate(lm, m, &o, prompt);
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    for (size_t i = 0; i < count; i++) OK(kn_tokens_push(&all, tokens[i].token, 0));
    kn_sequence_close(s);
    return all;
}

// Where every token is a word, a penalty that forbids leaves no three words twice.
static void nothing_is_said_again_and_again(void **state) {
    kn_lm *lm = open_model(WORDS);
    kn_mixture *m = no_store(lm);
    (void)state;
    kn_tokens loops = greedy_tokens(lm, m, "", 0), dry = greedy_tokens(lm, m, "", 100);
    assert_true(find_repeat(&loops, 0) > 0);
    assert_int_equal(find_repeat(&dry, 0), 0);
    kn_tokens_free(&loops);
    kn_tokens_free(&dry);
    kn_mixture_close(m);
    kn_lm_close(lm);
}

// Tokens are parts of words: what is said again goes on with a word.
static void words_that_were_begun_are_ended(void **state) {
    fixture *d = *state;
    size_t spared = 0, size;
    kn_tokens prompt = encode(d->small, told), all = greedy_tokens(d->small, d->both, told, 100);
    for (size_t at = prompt.count; (at = find_repeat(&all, at)); at++, spared++) {
        char *text;
        OK(kn_tokenizer_decode(kn_lm_tokenizer(d->small), all.ids + at - 1, 2, &text, &size));
        if (strpbrk(text + 1, " \n")) fail_msg("\"%s\" is said again", text);
        free(text);
    }
    assert_true(spared > 0);
    kn_tokens_free(&prompt);
    kn_tokens_free(&all);
}

// ---------------------------------------------------------------- bad input

static void what_cannot_be_begun(void **state) {
    fixture *d = *state;
    kn_sequence *s;
    const char *empty = "", *broken = "a\xC3";
    kn_generate_options o = greedy(3);
    FAILS(KNNLM_EINVAL, "token -1 at position 1", kn_sequence_open(d->small, &o, (int32_t[]){5, -1}, 2, &s));
    FAILS(KNNLM_EINVAL, "token 16000", kn_sequence_open(d->small, &o, (int32_t[]){16000}, 1, &s));
    o.sampling.top_p = 2;
    FAILS(KNNLM_EINVAL, "top_p", kn_sequence_open(d->small, &o, NULL, 0, &s));
    o = greedy(3);
    o.stops = &empty;
    o.stop_count = 1;
    FAILS(KNNLM_EINVAL, "empty", kn_sequence_open(d->small, &o, NULL, 0, &s));
    o.stops = &broken;
    FAILS(KNNLM_EINVAL, "UTF-8", kn_sequence_open(d->small, &o, NULL, 0, &s));
    o = greedy(0);
    OK(kn_sequence_open(d->small, &o, NULL, 0, &s));
    assert_int_equal(kn_sequence_finish(s), KNNLM_FINISH_LENGTH);
    assert_text(s, "");
    kn_sequence_close(s);
}

static void what_cannot_be_stepped(void **state) {
    fixture *d = *state;
    kn_mixture *elsewhere = open_store(d->folder, d->small, "elsewhere.store", 0.5, 20);
    kn_generate_options none = greedy(0), some = greedy(3);
    kn_sequence *s[3] = {begin(d->small, &some, "a"), begin(d->small, &some, "b"),
                         begin(d->small, &none, "c")};
    const kn_mixture *m[3] = {d->both, d->both, d->both};
    kn_generator *g;
    OK(kn_generator_open(d->small, 2, &g));
    FAILS(KNNLM_EINVAL, "at most 2", kn_generator_step(g, s, m, 3));
    FAILS(KNNLM_EINVAL, "finished", kn_generator_step(g, s + 1, m, 2));
    FAILS(KNNLM_EINVAL, "twice", kn_generator_step(g, (kn_sequence *[]){s[0], s[0]}, m, 2));
    m[1] = elsewhere;
    FAILS(KNNLM_EINVAL, "one tap", kn_generator_step(g, s, m, 2));
    m[1] = d->both;
    kn_mixture_close(elsewhere);
    OK(kn_generator_step(g, s, m, 0));
    OK(kn_generator_step(g, s, m, 2));
    kn_generator_close(g);
    for (int i = 0; i < 3; i++) kn_sequence_close(s[i]);
    kn_sequence_close(NULL);
    kn_generator_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_words_are_the_best_guesses),
        cmocka_unit_test(the_model_alone_has_no_neighbours),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(nothing_is_said_again_and_again),
        cmocka_unit_test(words_that_were_begun_are_ended),
        cmocka_unit_test(full_contexts_go_on),
        cmocka_unit_test(texts_end_before_stops),
        cmocka_unit_test(broken_characters_are_replaced),
        cmocka_unit_test(words_are_joined_and_lines_end),
        cmocka_unit_test(what_cannot_be_begun),
        cmocka_unit_test(what_cannot_be_stepped),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
