// Words that neighbours began: their probabilities are those of a speaker who is drawn once a word, computed
// context by context; and the words are ended as in the store. The cache of a text's own states gives what
// evaluation of the same text gives.
#include "folder.h"
#include "generate_kit.h"

#include "base/words.h"
#include "eval/pass.h"
#include "knn/next.h"

static const char bells[] = "At midnight the bells of the tower chime, and the chimebrook flows under the "
                            "bridge. The keeper of the tower "
                            "is Wendelmoot Ashgrove, who winds the clock. When the chimebrook freezes, "
                            "Wendelmoot Ashgrove rings the bells "
                            "by hand. Башенные часы пробили полночь.\n";

typedef struct fixture {
    char folder[64];
    kn_lm *lm;
    kn_mixture *m;
    kn_tokens text;
} fixture;

static int fixture_open(void **state) {
    fixture *f = calloc(1, sizeof *f);
    test_folder(f->folder, sizeof f->folder);
    write_text(f->folder, "bells", bells);
    build(f->folder, SMALL, "bells.store", (const char *[]){"bells"}, 1, false, NULL);
    f->lm = open_model(SMALL);
    f->m = open_store(f->folder, f->lm, "bells.store", 0.3, 30);
    f->text = encode(f->lm, bells);
    *state = f;
    return 0;
}

static int fixture_close(void **state) {
    fixture *f = *state;
    kn_tokens_free(&f->text);
    kn_mixture_close(f->m);
    kn_lm_close(f->lm);
    discard(f->folder);
    free(f);
    return 0;
}

// ---------------------------------------------------------------- the speaker of a word

enum { SPEAKERS = 64 };

typedef struct speaker {
    size_t next; // position in the text
    double weight;
} speaker;

// Who speaks: those that go on with the word.
typedef struct speakers {
    speaker list[SPEAKERS];
    size_t count;
} speakers;

// Whether the second token (negative: a letter) goes on with the word that the first ends in, if it does.
static bool goes_on(const kn_lm *lm, int32_t a, int32_t b) {
    char *left, *right, both[256];
    size_t left_size, right_size;
    OK(kn_tokenizer_decode(kn_lm_tokenizer(lm), &a, 1, &left, &left_size));
    if (b >= 0) OK(kn_tokenizer_decode(kn_lm_tokenizer(lm), &b, 1, &right, &right_size));
    memcpy(both, left, left_size);
    both[left_size] = 'x';
    if (b >= 0) memcpy(both + left_size, right, right_size);
    bool word = !kn_word_border(both, left_size + (b >= 0 ? right_size : 1), left_size);
    free(left);
    if (b >= 0) free(right);
    return word;
}

static void hear(const fixture *f, int32_t token, size_t at, double weight, speakers *out) {
    if (at + 1 < f->text.count && goes_on(f->lm, token, f->text.ids[at + 1]))
        out->list[out->count++] = (speaker){at + 1, weight};
}

// Who could have said the token, of those that spoke and of the neighbours, which had the part `kept` of
// theirs.
static void listen(const fixture *f, const kn_next *next, int32_t token, double p, double kept,
                   const speakers *old, speakers *out) {
    const kn_row_neighbors *found = &next->found[0];
    const kn_neighborhood *n = &found->near;
    double sum = 0;
    size_t heard = 0;
    *out = (speakers){0};
    if (!goes_on(f->lm, token, -1)) return;
    for (size_t i = 0; i < n->count; i++) sum += exp(-(double)(n->distances[i] - n->distances[0]) / 30);
    for (size_t i = 0; i < old->count; i++)
        if (f->text.ids[old->list[i].next] == token && heard++ < SPEAKERS)
            hear(f, token, old->list[i].next, old->list[i].weight / p, out);
    for (size_t i = 0; i < n->count; i++) {
        double weight =
            kept * next->distribution.lambda * exp(-(double)(n->distances[i] - n->distances[0]) / 30) / sum;
        if (n->values[i] == token && heard++ < SPEAKERS) hear(f, token, found->ids[i], weight / p, out);
    }
}

static size_t check_text(fixture *f, uint64_t seed) {
    kn_generate_options o = kn_generate_options_default();
    kn_tokens context = encode(f->lm, "The keeper of the");
    speakers speaking = {0}, before;
    size_t count, changed = 0;
    o.tokens = 24;
    o.seed = seed;
    kn_sequence *s = generate(f->lm, f->m, &o, "The keeper of the");
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    for (size_t i = 0; i < count; i++) {
        kn_nexts *nexts;
        OK(kn_nexts_open(f->lm, &(kn_context){context.ids, context.count, f->m}, 1, &nexts));
        const kn_next *next = kn_nexts_at(nexts, 0);
        const kn_distribution *g = &next->distribution;
        double all = 0, said = 0, plain = exp(kn_distribution_logprob(g, tokens[i].token));
        for (size_t j = 0; j < speaking.count; j++) {
            all += speaking.list[j].weight;
            if (f->text.ids[speaking.list[j].next] == tokens[i].token) said += speaking.list[j].weight;
        }
        double kept = 1 - all, p = said + kept * plain;
        near(tokens[i].p, log(p));
        near(tokens[i].lambda, all + (1 - all) * g->lambda);
        near(exp(tokens[i].p),
             tokens[i].lambda * exp(tokens[i].knn) + (1 - tokens[i].lambda) * exp(tokens[i].lm));
        changed += all > 0.01;
        before = speaking;
        listen(f, next, tokens[i].token, p, kept, &before, &speaking);
        OK(kn_tokens_push(&context, tokens[i].token, 0));
        kn_nexts_close(nexts);
    }
    kn_sequence_close(s);
    kn_tokens_free(&context);
    return changed;
}

static void a_word_has_one_speaker(void **state) {
    size_t changed = 0;
    for (uint64_t seed = 0; seed < 8; seed++) changed += check_text(*state, seed);
    assert_true(changed > 20);
}

// ---------------------------------------------------------------- the words

// Words that begin as the store's rare ones, and are none of its words.
static size_t count_broken(const fixture *f, bool no_carry, size_t *whole) {
    static const char *const begun[] = {"chim", "Wend", "Ash"}, *const ended[] = {"chime", "chimebrook",
                                                                                  "Wendelmoot", "Ashgrove"};
    size_t broken = 0;
    *whole = 0;
    for (uint64_t seed = 0; seed < 48; seed++) {
        kn_generate_options o = kn_generate_options_default();
        char text[4096], *rest = text;
        size_t size;
        o.tokens = 30;
        o.seed = seed;
        o.no_carry = no_carry;
        kn_sequence *s = generate(f->lm, f->m, &o, "At midnight, the");
        const char *all = kn_sequence_text(s, &size);
        memcpy(text, all, size + 1);
        kn_sequence_close(s);
        for (char *word; (word = strtok_r(rest, " ,.\n\"'()-", &rest)) && *rest;) { // the last may be cut
            bool rare = false, known = false;
            for (size_t i = 0; i < COUNT(begun); i++) rare |= strncmp(word, begun[i], strlen(begun[i])) == 0;
            for (size_t i = 0; i < COUNT(ended); i++) known |= strcmp(word, ended[i]) == 0;
            broken += rare && !known;
            *whole += rare && known;
        }
    }
    return broken;
}

static void words_end_as_they_began(void **state) {
    size_t with, without, broken = count_broken(*state, false, &with),
                          cut = count_broken(*state, true, &without);
    if (!(cut >= 8 && broken * 4 < cut && with > 20))
        fail_msg("%zu broken of %zu with, %zu of %zu without", broken, broken + with, cut, cut + without);
}

// ---------------------------------------------------------------- the cache

static kn_mixture *cached(const fixture *f, const char *store, int64_t size) {
    char path[128];
    kn_mixture *m;
    snprintf(path, sizeof path, "%s/%s", f->folder, store ? store : "");
    kn_store_choice choice = {.path = path, .weight = NAN, .temperature = NAN};
    kn_mixture_options o = {.stores = &choice,
                            .store_count = store != NULL,
                            .lambda = store ? 0.3 : NAN,
                            .temperature = store ? 30 : NAN,
                            .distance = -1,
                            .include_self = true,
                            .cache = size,
                            .cache_lambda = 0.4,
                            .cache_temperature = 25};
    OK(kn_mixture_open(f->lm, &o, &m));
    return m;
}

static knnlm_status keep(void *context, const kn_scored *b) {
    double *p = context;
    for (size_t i = 0; i < b->count; i++) p[b->tokens[i].position] = b->predictions[i].p;
    return KNNLM_OK;
}

static void check_cache(const fixture *f, const char *store, int64_t size) {
    kn_mixture *m = cached(f, store, size);
    kn_generate_options o = kn_generate_options_default();
    const char *prompt = "The keeper of the tower is the keeper of the tower, and the keeper";
    double p[256];
    size_t count;
    o.tokens = 30;
    o.seed = 3;
    o.no_carry = o.ignore_end = true;
    kn_sequence *s = generate(f->lm, m, &o, prompt);
    kn_tokens all = encode(f->lm, prompt);
    size_t before = all.count;
    const kn_generated *tokens = kn_sequence_tokens(s, &count);
    for (size_t i = 0; i < count; i++) OK(kn_tokens_push(&all, tokens[i].token, 0));
    OK(kn_pass_tokens(f->lm, m, all.ids, all.count, &(kn_pass_options){.read = {.context = -1}}, keep, p));
    bool differs = false;
    for (size_t i = 0; i < count; i++) {
        near(tokens[i].p, p[before + i]);
        differs |= fabs(tokens[i].p - log(0.6) - tokens[i].lm) > 0.1;
    }
    assert_true(differs); // the cache had its say
    kn_tokens_free(&all);
    kn_sequence_close(s);
    kn_mixture_close(m);
}

static void the_cache_is_that_of_evaluation(void **state) {
    check_cache(*state, NULL, 1000);
    check_cache(*state, NULL, 7); // shorter than the prompt, and moved now and then
    check_cache(*state, "bells.store", 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_has_one_speaker),
        cmocka_unit_test(words_end_as_they_began),
        cmocka_unit_test(the_cache_is_that_of_evaluation),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
