// Stores and threads: one writes, removes and compacts while eight read; every state that a reader meets is
// one that was committed, and stays as it is. And the spool, by which files are written behind the caller's
// back.
#include "store_kit.h"

#include "base/progress.h"
#include "base/spool.h"

#include <pthread.h>
#include <stdatomic.h>

enum { READERS = 8, SEEDS = 1 << 14, SEGMENT = 32 };

// ---------------------------------------------------------------- what is known of every document

typedef enum known { ABSENT, ADDING, PRESENT, REMOVING, GONE } known;

static struct {
    _Atomic(int) known[SEEDS]; // by seed; changed by the writer alone, before and after its commits
    atomic_ulong generation;   // of the last commit that returned
    atomic_uint next;          // the first seed not used yet
    atomic_bool quit;
    atomic_ulong states, commits, compactions;
    pthread_mutex_t mutex;
    char failure[256];
} stage = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t length_of(uint32_t seed) {
    return kit_number(seed, 0, 99) % 60;
}

// Asserts are for the main thread: others leave the first failure here.
static bool fails(const char *what) {
    if (!what) return false;
    pthread_mutex_lock(&stage.mutex);
    if (!*stage.failure) snprintf(stage.failure, sizeof stage.failure, "%s", what);
    pthread_mutex_unlock(&stage.mutex);
    stage.quit = true;
    return true;
}

static bool failed_call(knnlm_status status) {
    return status != KNNLM_OK && fails(knnlm_message());
}

// ---------------------------------------------------------------- the writer

// Removes every third document that is there, more or less.
static knnlm_status remove_some(kn_store_writer *w, kn_random *random, uint32_t *removed, size_t *count) {
    const kn_store *base = kn_store_writer_base(w);
    for (uint64_t i = 0; base && i < kn_store_describe(base)->documents; i++) {
        kn_store_document d;
        KN_TRY(kn_store_document_at(base, i, &d));
        if (d.removed || kn_random_below(random, 3)) continue;
        uint32_t seed = (uint32_t)atoi(d.name + sizeof "document");
        stage.known[seed] = REMOVING;
        removed[(*count)++] = seed;
        KN_TRY(kn_store_writer_remove(w, i));
    }
    return KNNLM_OK;
}

static knnlm_status add_some(kn_store_writer *w, uint32_t first, uint32_t count) {
    for (uint32_t seed = first; seed < first + count; seed++) {
        kit_item item = {seed, length_of(seed), length_of(seed), false};
        stage.known[seed] = ADDING;
        KN_TRY(kit_add(w, &item, 1, 10));
    }
    return KNNLM_OK;
}

static knnlm_status write_round(kn_store_writer *w, kn_random *random) {
    static uint32_t removed[SEEDS];
    size_t removed_count = 0;
    uint32_t first = stage.next, count = 1 + (uint32_t)kn_random_below(random, 5);
    stage.next = first + count;
    KN_TRY(remove_some(w, random, removed, &removed_count));
    KN_TRY(add_some(w, first, count));
    KN_TRY(kn_store_writer_commit(w));
    for (uint32_t seed = first; seed < first + count; seed++) stage.known[seed] = PRESENT;
    for (size_t i = 0; i < removed_count; i++) stage.known[removed[i]] = GONE;
    stage.commits++;
    return KNNLM_OK;
}

static knnlm_status note_generation(void) {
    kn_store *s;
    KN_TRY(kn_store_open("s", &s));
    stage.generation = kn_store_describe(s)->generation;
    kn_store_close(s);
    return KNNLM_OK;
}

static void *write_on(void *unused) {
    (void)unused;
    kn_random random = {3};
    for (int round = 1; !stage.quit && stage.next < SEEDS - 10; round++) {
        kn_store_writer *w;
        knnlm_compact_result c;
        if (failed_call(kn_store_write("s", &w))) break;
        knnlm_status status = write_round(w, &random);
        kn_store_writer_close(w);
        if (failed_call(status) || failed_call(note_generation())) break;
        if (round % 4) continue;
        if (failed_call(kn_store_compact("s", false, NULL, NULL, &c))) break;
        stage.compactions++;
    }
    return NULL;
}

// ---------------------------------------------------------------- the readers

// Whether the state, opened between the two looks at what is known, is one that could be.
static const char *judge(const kn_store *s, const uint8_t *before, const uint8_t *after) {
    uint64_t count = kn_store_describe(s)->documents;
    kit_item *items = kit_alloc((size_t)count, sizeof *items);
    uint8_t *here = kit_alloc(SEEDS, 1);
    const char *reason = NULL;
    for (uint64_t i = 0; i < count && !reason; i++) {
        kn_store_document d;
        if (kn_store_document_at(s, i, &d) != KNNLM_OK) reason = knnlm_message();
        uint32_t seed = reason ? 0 : (uint32_t)atoi(d.name + sizeof "document");
        if (reason || seed >= SEEDS) break;
        bool cut = i + 1 == count && !kn_store_describe(s)->complete; // the middle of an addition
        items[i] = (kit_item){seed, length_of(seed), cut ? d.count : length_of(seed), d.removed};
        here[seed] = !d.removed;
    }
    if (!reason) reason = kit_compare(s, items, (size_t)count);
    for (uint32_t seed = 0; seed < SEEDS && !reason; seed++) {
        if (before[seed] == PRESENT && after[seed] == PRESENT && !here[seed])
            reason = kit_differs("document %u was committed and is not there", seed);
        if ((before[seed] == GONE || after[seed] == ABSENT) && here[seed])
            reason = kit_differs("document %u is there", seed);
    }
    free(items);
    free(here);
    return reason;
}

static void look(uint8_t *out) {
    for (size_t i = 0; i < SEEDS; i++) out[i] = (uint8_t)stage.known[i];
}

static kn_store *open_judged(uint8_t *before, uint8_t *after) {
    kn_store *s;
    uint64_t oldest = stage.generation;
    look(before);
    if (failed_call(kn_store_open("s", &s))) return NULL;
    look(after);
    if (kn_store_describe(s)->generation < oldest) fails("an older state than the last commit");
    fails(judge(s, before, after));
    stage.states++;
    return s;
}

static const char *verify(const kn_store *s) {
    knnlm_verify_result v;
    if (kn_store_verify(s, NULL, NULL, NULL, &v) != KNNLM_OK) return knnlm_message();
    free(v.document_damaged);
    return v.problems ? "a problem" : NULL;
}

static void *read_on(void *number) {
    uint8_t *before = kit_alloc(SEEDS, 1), *after = kit_alloc(SEEDS, 1);
    kn_store *s = NULL;
    for (int round = 0; !stage.quit; round++) {
        bool stale = !s || !kn_store_is_current(s);
        if (stale) {
            // What was read once reads the same after its files were replaced.
            if (s) fails(judge(s, before, after));
            kn_store_close(s);
            s = open_judged(before, after);
        } else {
            usleep(300);
        }
        if (s && *(int *)number == 0 && round % 8 == 0) fails(verify(s));
    }
    kn_store_close(s);
    free(before);
    free(after);
    return NULL;
}

static double seconds_wanted(void) {
    const char *asked = getenv("STORE_SECONDS");
    return asked ? atof(asked) : 1.5;
}

static void readers_see_committed_states(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 8, SEGMENT);
    pthread_t writer, readers[READERS];
    int numbers[READERS];
    OK(kit_build("s", &set, NULL, 0, 1));
    stage.next = 1;
    assert_int_equal(pthread_create(&writer, NULL, write_on, NULL), 0);
    for (int i = 0; i < READERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, &numbers[i]), 0);
    }
    double end = kn_seconds() + seconds_wanted();
    while (kn_seconds() < end && !stage.quit) usleep(10000);
    stage.quit = true;
    pthread_join(writer, NULL);
    for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
    if (*stage.failure) fail_msg("%s", stage.failure);
    print_message("    %lu commits, %lu compactions, %lu states read\n", stage.commits, stage.compactions,
                  stage.states);
    assert_true(stage.commits >= 4 && stage.compactions >= 1 && stage.states >= READERS);
}

// ---------------------------------------------------------------- the spool

typedef struct errand {
    int number, *next; // *next: the number that comes
    int fails_at, *disposed;
} errand;

static knnlm_status run_errand(void *context, bool failed) {
    errand e = *(errand *)context;
    free(context);
    if (failed) {
        ++*e.disposed;
        return KNNLM_OK;
    }
    if (e.number != *e.next) return kn_fail(KNNLM_EINVAL, "errand %d came before %d", e.number, *e.next);
    ++*e.next;
    return e.number == e.fails_at ? kn_fail(KNNLM_EDATA, "errand %d failed", e.number) : KNNLM_OK;
}

static knnlm_status send_errand(kn_spool *s, int number, int *next, int fails_at, int *disposed) {
    errand *e = kit_alloc(1, sizeof *e);
    *e = (errand){number, next, fails_at, disposed};
    return kn_spool_put(s, run_errand, e);
}

static void jobs_are_done_in_order(void **state) {
    (void)state;
    for (size_t depth = 1; depth <= 16; depth *= 4) {
        int next = 0, disposed = 0;
        kn_spool *s;
        OK(kn_spool_open(depth, &s));
        OK(kn_spool_drain(s)); // of nothing
        for (int i = 0; i < 5000; i++) OK(send_errand(s, i, &next, -1, &disposed));
        OK(kn_spool_drain(s));
        assert_int_equal(next, 5000);
        for (int i = 5000; i < 5020; i++) OK(send_errand(s, i, &next, -1, &disposed));
        kn_spool_close(s); // also those still waiting
        assert_int_equal(next, 5020);
        assert_int_equal(disposed, 0);
    }
    kn_spool_close(NULL);
}

static void the_first_failure_stays(void **state) {
    (void)state;
    int next = 0, disposed = 0;
    kn_spool *s;
    OK(kn_spool_open(4, &s));
    for (int i = 0; i < 100; i++) {
        knnlm_status status = send_errand(s, i, &next, 10, &disposed);
        assert_true(status == KNNLM_OK || (status == KNNLM_EDATA && i > 10));
    }
    FAILS(KNNLM_EDATA, "errand 10 failed", kn_spool_drain(s));
    FAILS(KNNLM_EDATA, "errand 10 failed", send_errand(s, 100, &next, -1, &disposed));
    FAILS(KNNLM_EDATA, "errand 10 failed", kn_spool_drain(s));
    kn_spool_close(s);
    assert_int_equal(next, 11);
    assert_int_equal(disposed, 90);
}

int main(void) {
    char directory[KIT_PATH], origin[KIT_PATH];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_committed_states),
        cmocka_unit_test(jobs_are_done_in_order),
        cmocka_unit_test(the_first_failure_stays),
    };
    test_folder(directory, sizeof directory);
    if (!getcwd(origin, sizeof origin) || chdir(directory) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (chdir(origin) != 0) return 1;
    kit_delete(directory);
    return failed;
}
