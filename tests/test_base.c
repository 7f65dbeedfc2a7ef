// The base room: messages, checked sizes, files written whole or not at all, threads, random numbers.
#include "expect.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/status.h"
#include "base/threads.h"

#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "test_base.XXXXXX";

static int enter_directory(void **state) {
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int leave_directory(void **state) {
    (void)state;
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1; // not empty: a test left a file behind
}

// ---- status

static void messages_are_kept(void **state) {
    (void)state;
    assert_int_equal(kn_fail(KNNLM_EDATA, "at byte %d", 7), KNNLM_EDATA);
    assert_string_equal(knnlm_message(), "at byte 7");
    assert_int_equal(kn_fail_in(KNNLM_EDATA, "a.txt"), KNNLM_EDATA);
    assert_string_equal(knnlm_message(), "a.txt: at byte 7");
    assert_int_equal(kn_fail_errno(KNNLM_EIO, 2, "b.txt"), KNNLM_EIO);
    assert_string_equal(knnlm_message(), "b.txt: No such file or directory");
    kn_fail(KNNLM_EIO, "again: %s", knnlm_message()); // its own message as an argument
    assert_string_equal(knnlm_message(), "again: b.txt: No such file or directory");
}

static void long_messages_are_cut(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    kn_fail(KNNLM_EDATA, "%s", text);
    size_t length = strlen(knnlm_message());
    assert_in_range(length, 500, 2000);
    kn_fail_errno(KNNLM_EDATA, 2, "%s", text);
    for (int i = 0; i < 3; i++) kn_fail_in(KNNLM_EDATA, text);
    assert_int_equal(strlen(knnlm_message()), length);
}

static knnlm_status tries(knnlm_status first, int *reached) {
    KN_TRY(first);
    ++*reached;
    return KNNLM_OK;
}

static void try_returns_early(void **state) {
    (void)state;
    int reached = 0;
    assert_int_equal(tries(KNNLM_OK, &reached), KNNLM_OK);
    assert_int_equal(tries(KNNLM_ESTOPPED, &reached), KNNLM_ESTOPPED);
    assert_int_equal(reached, 1);
}

static void every_status_has_a_name(void **state) {
    (void)state;
    for (int s = KNNLM_OK; s <= KNNLM_EBUSY; s++)
        assert_string_not_equal(knnlm_status_name((knnlm_status)s), "unknown status");
    assert_string_equal(knnlm_status_name((knnlm_status)99), "unknown status");
    assert_string_equal(knnlm_version(), KNNLM_VERSION);
}

static void *fail_elsewhere(void *unused) {
    (void)unused;
    kn_fail(KNNLM_EIO, "elsewhere");
    return NULL;
}

static void messages_belong_to_their_thread(void **state) {
    (void)state;
    pthread_t thread;
    kn_fail(KNNLM_EIO, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(knnlm_message(), "here");
}

// ---- memory

static void sizes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    size_t out;
    assert_true(kn_mul(1u << 31, 1u << 31, &out) && out == (size_t)1 << 62);
    assert_false(kn_mul(SIZE_MAX, 2, &out));
    assert_false(kn_mul((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_true(kn_mul(0, SIZE_MAX, &out) && out == 0);
    assert_true(kn_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(kn_add(SIZE_MAX, 1, &out));
    assert_null(kn_alloc(SIZE_MAX, 2));
    assert_non_null(strstr(knnlm_message(), "out of memory"));
    assert_null(kn_alloc_aligned(SIZE_MAX / 2, 3));
    assert_null(kn_alloc_aligned(SIZE_MAX, 1));
}

static void allocations_are_zeroed_and_aligned(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 65, 4096, 3 << 20};
    uint8_t *zeroed = kn_alloc(1000, 3);
    for (int i = 0; i < 3000; i++) assert_int_equal(zeroed[i], 0);
    free(zeroed);
    free(kn_alloc(0, 0));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *memory = kn_alloc_aligned(sizes[i], 1);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        memset(memory, 1, sizes[i]);
        kn_free_aligned(memory);
    }
}

static void arrays_grow_and_keep_their_content(void **state) {
    (void)state;
    int *array = NULL;
    size_t capacity = 0, growths = 0;
    for (size_t n = 0; n < 10000; n++) {
        size_t before = capacity;
        OK(kn_grow(&array, &capacity, n + 1, sizeof *array));
        growths += capacity != before;
        assert_true(capacity > n);
        array[n] = (int)n;
    }
    for (size_t n = 0; n < 10000; n++) assert_int_equal(array[n], (int)n);
    assert_true(growths < 30);
    int *kept = array;
    size_t kept_capacity = capacity;
    FAILS(KNNLM_ENOMEM, "out of memory", kn_grow(&array, &capacity, SIZE_MAX / 2, sizeof *array));
    assert_ptr_equal(array, kept);
    assert_int_equal(capacity, kept_capacity);
    free(array);
}

static void strings_are_copied(void **state) {
    (void)state;
    char *copy = kn_strdup("abc"), *part = kn_strndup("abcdef", 2), *empty = kn_strndup(NULL, 0);
    assert_string_equal(copy, "abc");
    assert_string_equal(part, "ab");
    assert_string_equal(empty, "");
    free(copy);
    free(part);
    free(empty);
    assert_true(kn_memory_resident() > 0);
    assert_true(kn_memory_peak() > 0);
}

// ---- files

static void write_file(const char *path, const char *text) {
    kn_file_writer *writer;
    OK(kn_file_writer_open(path, &writer));
    OK(kn_file_writer_put(writer, text, strlen(text)));
    OK(kn_file_writer_commit(writer));
}

static void file_holds(const char *path, const char *text) {
    char *data;
    size_t size;
    OK(kn_file_read(path, &data, &size));
    assert_int_equal(size, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

static void files_are_written_whole_or_not_at_all(void **state) {
    (void)state;
    kn_file_writer *writer;
    write_file("f", "old");
    file_holds("f", "old");
    OK(kn_file_writer_open("f", &writer));
    OK(kn_file_writer_put(writer, "new", 3));
    file_holds("f", "old");
    kn_file_writer_abort(writer);
    file_holds("f", "old");
    write_file("f", "new");
    file_holds("f", "new");
    kn_file_writer_abort(NULL);
    unlink("f"); // leave_directory sees to it that no temporary file remains
}

static void two_writers_of_one_path_do_not_mix(void **state) {
    (void)state;
    kn_file_writer *one, *two;
    glob_t found;
    OK(kn_file_writer_open("f", &one));
    assert_int_equal(glob("f.*.tmp", 0, NULL, &found), 0); // of 64 bits that nobody can foresee
    assert_int_equal(found.gl_pathc, 1);
    assert_int_equal(strlen(found.gl_pathv[0]), strlen("f..tmp") + 16);
    assert_int_equal(strspn(found.gl_pathv[0] + 2, "0123456789abcdef"), 16);
    globfree(&found);
    OK(kn_file_writer_open("f", &two));
    OK(kn_file_writer_put(one, "first", 5));
    OK(kn_file_writer_put(two, "second!", 7));
    OK(kn_file_writer_commit(one));
    file_holds("f", "first");
    OK(kn_file_writer_commit(two));
    file_holds("f", "second!");
    unlink("f");
}

static void large_files_come_back(void **state) {
    (void)state;
    enum { N = 3000017 };
    uint8_t *data = kn_alloc(N, 1);
    kn_random random = {1};
    kn_file_writer *writer;
    kn_map map;
    for (int i = 0; i < N; i++) data[i] = (uint8_t)kn_random_next(&random);
    OK(kn_file_writer_open("large", &writer));
    for (size_t at = 0, piece = 1; at < N; at += piece, piece = piece * 3 % 700001)
        OK(kn_file_writer_put(writer, data + at, at + piece < N ? piece : N - at));
    assert_int_equal(kn_file_writer_offset(writer), N);
    OK(kn_file_writer_commit(writer));
    OK(kn_map_open("large", &map));
    assert_int_equal(map.size, N);
    assert_memory_equal(map.data, data, N);
    kn_map_release(&map, 5, N - 5);
    kn_map_release(&map, 0, N);
    assert_memory_equal(map.data, data, N);
    kn_map_close(&map);
    assert_null(map.data);
    free(data);
    unlink("large");
}

static void empty_files_are_files(void **state) {
    (void)state;
    kn_map map;
    write_file("empty", "");
    OK(kn_map_open("empty", &map));
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    kn_map_release(&map, 0, 0);
    kn_map_close(&map);
    file_holds("empty", "");
    unlink("empty");
}

static void what_is_no_file_is_an_error(void **state) {
    (void)state;
    kn_map map;
    char *data;
    size_t size;
    FAILS(KNNLM_EIO, "absent: No such file", kn_map_open("absent", &map));
    FAILS(KNNLM_EIO, ".: Is a directory", kn_map_open(".", &map));
    FAILS(KNNLM_EIO, "/dev/null: not a regular file", kn_map_open("/dev/null", &map));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    FAILS(KNNLM_EIO, "pipe: not a regular file", kn_map_open("pipe", &map)); // and nobody waits for a writer
    unlink("pipe");
    FAILS(KNNLM_EIO, "absent", kn_file_read("absent", &data, &size));
    FAILS(KNNLM_EIO, ".", kn_file_read(".", &data, &size));
}

static void places_that_cannot_be_written_are_errors(void **state) {
    (void)state;
    kn_file_writer *writer;
    FAILS(KNNLM_EIO, "absent/f: cannot create", kn_file_writer_open("absent/f", &writer));
    if (geteuid() != 0) { // root may write anywhere
        assert_int_equal(mkdir("closed", 0500), 0);
        FAILS(KNNLM_EIO, "closed/f: cannot create: Permission denied",
              kn_file_writer_open("closed/f", &writer));
        rmdir("closed");
    }
    OK(kn_file_writer_open("taken", &writer));
    OK(kn_file_writer_put(writer, "x", 1));
    assert_int_equal(mkdir("taken", 0700), 0); // a directory cannot be replaced by a file
    FAILS(KNNLM_EIO, "taken: cannot write", kn_file_writer_commit(writer));
    FAILS(KNNLM_EIO, "taken: cannot create: Is a directory", kn_file_writer_open("taken", &writer));
    FAILS(KNNLM_EIO, "taken: cannot create: Is a directory", kn_writer_try("taken"));
    rmdir("taken");
    // Nor, by root, devices and the links to them.
    FAILS(KNNLM_EIO, "/dev/null: cannot create: not a regular file",
          kn_file_writer_open("/dev/null", &writer));
    FAILS(KNNLM_EIO, "/dev/stdout: cannot create: not a regular file",
          kn_file_writer_open("/dev/stdout", &writer));
    FAILS(KNNLM_EINVAL, "an empty file name", kn_file_writer_open("", &writer));
    OK(kn_writer_try("taken"));
    assert_int_equal(access("taken", F_OK), -1);
}

static void one_file_by_two_names_is_known(void **state) {
    (void)state;
    kn_file_writer *writer;
    OK(kn_file_writer_open("one", &writer));
    OK(kn_file_writer_commit(writer));
    assert_int_equal(link("one", "two"), 0);
    assert_int_equal(symlink("one", "three"), 0);
    assert_true(kn_file_same("one", "two") && kn_file_same("three", "./one"));
    assert_false(kn_file_same("one", "absent") || kn_file_same("absent", "absent") ||
                 kn_file_same("one", "."));
    for (int i = 0; i < 3; i++) assert_int_equal(unlink(((const char *[]){"one", "two", "three"})[i]), 0);
}

static void free_space_is_told(void **state) {
    (void)state;
    uint64_t bytes = 0;
    OK(kn_disk_free("f", &bytes));
    assert_true(bytes > 0);
    FAILS(KNNLM_EIO, "absent/f", kn_disk_free("absent/f", &bytes));
}

// ---- threads

enum { TASKS = 1000 };

struct work {
    atomic_int runs[TASKS], inner;
    atomic_int out_of_range;
    double results[TASKS];
    int scratch[KN_THREADS_MAX]; // not atomic: two tasks at once on one worker are a race
};

static void one_task(void *context, size_t task, int worker) {
    struct work *work = context;
    atomic_fetch_add(&work->runs[task], 1);
    if (worker < 0 || worker >= kn_threads()) {
        atomic_fetch_add(&work->out_of_range, 1);
        return;
    }
    work->scratch[worker]++;
    double sum = 0;
    for (size_t i = 0; i < 200; i++) sum += 1.0 / (double)(1 + i * task);
    work->results[task] = sum;
}

static void check_work(struct work *work, size_t tasks, int times) {
    int total = 0;
    for (size_t i = 0; i < TASKS; i++) assert_int_equal(atomic_load(&work->runs[i]), i < tasks ? times : 0);
    for (int i = 0; i < KN_THREADS_MAX; i++) total += work->scratch[i];
    assert_int_equal(total, (int)tasks * times);
    assert_int_equal(atomic_load(&work->out_of_range), 0);
}

// A server's threads share the pool: their calls take turns.
static void *caller(void *context) {
    for (int i = 0; i < 100; i++) kn_parallel(20, one_task, context);
    return NULL;
}

static void call_from_many_threads(void) {
    static struct work work[3];
    pthread_t threads[3];
    memset(work, 0, sizeof work);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, caller, &work[i]), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) check_work(&work[i], 20, 100);
}

// Runs before any other test of threads: the first of these calls starts the pool.
static void first_calls_may_come_at_once(void **state) {
    (void)state;
    call_from_many_threads();
}

static void calls_from_many_threads_take_turns(void **state) {
    (void)state;
    OK(kn_threads_set(3));
    call_from_many_threads();
}

static void every_task_runs_once(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 7, 64, TASKS};
    static struct work work, first;
    for (int threads = 1; threads <= 8; threads++) {
        OK(kn_threads_set(threads));
        assert_int_equal(kn_threads(), threads);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            memset(&work, 0, sizeof work);
            kn_parallel(counts[i], one_task, &work);
            check_work(&work, counts[i], 1);
        }
        if (threads == 1) first = work;
        assert_memory_equal(work.results, first.results, sizeof work.results);
    }
}

// Work upon work without a pause, then pauses long enough for the helpers to fall asleep.
static void calls_follow_each_other(void **state) {
    (void)state;
    static struct work work;
    memset(&work, 0, sizeof work);
    OK(kn_threads_set(4));
    for (int i = 0; i < 2000; i++) kn_parallel(5, one_task, &work);
    for (int i = 0; i < 30; i++) {
        usleep(3000);
        kn_parallel(5, one_task, &work);
    }
    check_work(&work, 5, 2030);
}

static void inner_task(void *context, size_t task, int worker) {
    int *seen = context;
    seen[task] = 100 + worker;
}

static void outer_task(void *context, size_t task, int worker) {
    struct work *work = context;
    int seen[10] = {0};
    kn_parallel(10, inner_task, seen);
    for (int i = 0; i < 10; i++)
        if (seen[i] == 100 + worker) atomic_fetch_add(&work->inner, 1);
    one_task(context, task, worker);
}

static void nested_calls_run_in_place(void **state) {
    (void)state;
    static struct work work;
    for (int threads = 1; threads <= 5; threads += 2) {
        memset(&work, 0, sizeof work);
        OK(kn_threads_set(threads));
        kn_parallel(50, outer_task, &work);
        check_work(&work, 50, 1);
        assert_int_equal(atomic_load(&work.inner), 500);
    }
}

static void only_task(void *context, size_t task, int worker) {
    (void)task;
    (void)worker;
    kn_parallel(TASKS, one_task, context);
}

static void a_single_task_may_spread_its_own_calls(void **state) {
    (void)state;
    static struct work work;
    memset(&work, 0, sizeof work);
    OK(kn_threads_set(3));
    kn_parallel(1, only_task, &work);
    check_work(&work, TASKS, 1);
}

static void setting_task(void *context, size_t task, int worker) {
    (void)worker;
    ((knnlm_status *)context)[task] = kn_threads_set(2);
}

static void numbers_of_threads_are_checked(void **state) {
    (void)state;
    knnlm_status inside[4] = {0};
    FAILS(KNNLM_EINVAL, "-1 threads", kn_threads_set(-1));
    FAILS(KNNLM_EINVAL, "257 threads", kn_threads_set(257));
    OK(kn_threads_set(0));
    assert_in_range(kn_threads(), 1, KN_THREADS_MAX);
    OK(kn_threads_set(3));
    kn_parallel(4, setting_task, inside);
    for (int i = 0; i < 4; i++) assert_int_equal(inside[i], KNNLM_EINVAL);
    assert_int_equal(kn_threads(), 3);
}

// ---- random and progress

// The first numbers of splitmix64 from seed 1234567, as published with the algorithm.
static void random_numbers_are_splitmix64(void **state) {
    (void)state;
    static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                        4593380528125082431u, 16408922859458223821u};
    kn_random random = {1234567};
    for (int i = 0; i < 5; i++) assert_true(kn_random_next(&random) == expected[i]);
}

static void random_numbers_have_their_distribution(void **state) {
    (void)state;
    enum { N = 200000 };
    kn_random random = {42};
    double sum = 0, squares = 0, unit = 0;
    int counts[10] = {0};
    for (int i = 0; i < N; i++) {
        uint64_t below = kn_random_below(&random, 10);
        assert_in_range(below, 0, 9);
        counts[below]++;
        double u = kn_random_unit(&random), z = kn_random_normal(&random);
        assert_true(u >= 0 && u < 1);
        unit += u;
        sum += z;
        squares += z * z;
    }
    for (int i = 0; i < 10; i++) assert_in_range(counts[i], N / 10 - 700, N / 10 + 700); // 5 deviations
    assert_true(fabs(unit / N - 0.5) < 0.004);
    assert_true(fabs(sum / N) < 0.012);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_int_equal(kn_random_below(&random, 1), 0);
}

static bool stop_at_two(void *context, const char *what, uint64_t done, uint64_t total, const char *unit) {
    assert_string_equal(what, "reading");
    assert_string_equal(unit, "tokens");
    assert_int_equal(total, 3);
    ++*(int *)context;
    return done < 2;
}

static void progress_is_reported(void **state) {
    (void)state;
    int calls = 0;
    kn_progress progress = {stop_at_two, &calls};
    assert_true(kn_progress_report(NULL, "reading", 0, 3, "tokens"));
    assert_true(kn_progress_report(&(kn_progress){0}, "reading", 0, 3, "tokens"));
    assert_true(kn_progress_report(&progress, "reading", 1, 3, "tokens"));
    assert_false(kn_progress_report(&progress, "reading", 2, 3, "tokens"));
    assert_int_equal(calls, 2);
    double before = kn_seconds();
    assert_true(kn_seconds() >= before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_kept),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(try_returns_early),
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(messages_belong_to_their_thread),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(allocations_are_zeroed_and_aligned),
        cmocka_unit_test(arrays_grow_and_keep_their_content),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(files_are_written_whole_or_not_at_all),
        cmocka_unit_test(two_writers_of_one_path_do_not_mix),
        cmocka_unit_test(large_files_come_back),
        cmocka_unit_test(empty_files_are_files),
        cmocka_unit_test(what_is_no_file_is_an_error),
        cmocka_unit_test(places_that_cannot_be_written_are_errors),
        cmocka_unit_test(one_file_by_two_names_is_known),
        cmocka_unit_test(free_space_is_told),
        cmocka_unit_test(first_calls_may_come_at_once),
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(calls_follow_each_other),
        cmocka_unit_test(nested_calls_run_in_place),
        cmocka_unit_test(a_single_task_may_spread_its_own_calls),
        cmocka_unit_test(numbers_of_threads_are_checked),
        cmocka_unit_test(calls_from_many_threads_take_turns),
        cmocka_unit_test(random_numbers_are_splitmix64),
        cmocka_unit_test(random_numbers_have_their_distribution),
        cmocka_unit_test(progress_is_reported),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
