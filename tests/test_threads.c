// How many threads there are: CPUs by control groups of both versions and by affinity; threads that are left
// out while others use the CPUs, and tried again. What the threads do is in test_base.
#include "expect.h"

#include "base/cpus.h"
#include "base/pace.h"
#include "base/threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// ---------------------------------------------------------------- control groups

static char folder[] = "/tmp/test_threads.XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 ? system(command) : -1;
}

static void put(const char *path, const char *text) {
    char parent[256];
    snprintf(parent, sizeof parent, "%s", path);
    for (char *p = parent; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(parent, 0700);
            *p = '/';
        }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_cpus(const char *list, const char *root, int cpus) {
    put("list", list);
    assert_int_equal(kn_cgroup_cpus("list", root), cpus);
}

static void test_version_2(void **state) {
    (void)state;
    put("v2/cpu.max", "max 100000\n"); // as the root of a container without a limit
    put("v2/a/cpu.max", "400000 100000\n");
    put("v2/a/b/cpu.max", "max 100000\n");
    put("v2/a/c/cpu.max", "150000 100000\n");
    put("v2/a/d/cpu.max", "900000 100000\n");
    put("v2/a/e/cpu.max", "5000 100000\n");
    put("v2/a/f/other", "");
    assert_cpus("0::/\n", "v2", 0);
    assert_cpus("0::/a\n", "v2", 4);
    assert_cpus("0::/a/b\n", "v2", 4); // of the group around it
    assert_cpus("0::/a/c\n", "v2", 1); // one and a half
    assert_cpus("0::/a/d\n", "v2", 4);
    assert_cpus("0::/a/e\n", "v2", 1);
    assert_cpus("0::/a/f\n", "v2", 4);
    assert_cpus("0::/a", "v2", 4);
    put("inside/cpu.max", "200000 100000\n"); // the name is that of the outside
    assert_cpus("0::/docker/0123abcd\n", "inside", 2);
}

static void test_version_1(void **state) {
    (void)state;
    put("v1/cpu/cpu.cfs_quota_us", "-1\n");
    put("v1/cpu/cpu.cfs_period_us", "100000\n");
    put("v1/cpu/box/cpu.cfs_quota_us", "300000\n");
    put("v1/cpu/box/cpu.cfs_period_us", "100000\n");
    put("v1/cpu/box/small/cpu.cfs_quota_us", "50000\n");
    put("v1/cpu/box/small/cpu.cfs_period_us", "50000\n");
    put("v1/cpu/half/cpu.cfs_quota_us", "50000\n"); // no period
    const char *around = "12:memory:/elsewhere\n4:cpu,cpuacct:%s\n3:cpuset:/box\n0::/\n";
    const struct {
        const char *group;
        int cpus;
    } cases[] = {{"/", 0}, {"/box", 3}, {"/box/small", 1}, {"/half", 0}, {"/box/gone", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char list[256];
        snprintf(list, sizeof list, around, cases[i].group);
        assert_cpus(list, "v1", cases[i].cpus);
    }
    assert_cpus("4:cpuacct,cpu:/box\n", "v1", 3);
    assert_cpus("4:cpuset,cpuacct:/box\n", "v1", 0);
}

static void test_nonsense_is_no_limit(void **state) {
    (void)state;
    static const char *const texts[] = {"",        "\n",       "max\n", "0 100000\n", "100000 0\n",
                                        "-3 -1\n", "100000\n", "x y\n", "1e5 1e5\n",  "\xff\xfe"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("bad/cpu.max", texts[i]);
        assert_cpus("0::/\n", "bad", 0);
    }
    put("bad/cpu.max", "9223372036854775807 1\n");
    assert_cpus("0::/\n", "bad", INT32_MAX);
    assert_cpus("", "bad", 0);
    assert_cpus("no colons\n0:one\n", "bad", 0);
    assert_int_equal(kn_cgroup_cpus("nowhere", "bad"), 0);
}

// As by taskset.
static void test_affinity(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int cpus = kn_cpus(), first = 0;
    assert_in_range(cpus, 1, CPU_COUNT(&all));
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(kn_cpus(), 1);
    OK(kn_threads_set(0));
    assert_int_equal(kn_threads(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(kn_cpus(), cpus);
    OK(kn_threads_set(0));
    assert_int_equal(kn_threads(), cpus);
}

// ---------------------------------------------------------------- threads that pay

// A machine of `cpus`, of which others take `taken`: what the threads get in `seconds`. Returns how many
// threads were used on average.
static double work(kn_pace *p, int cpus, double taken, double seconds) {
    enum { STEPS = 4000 };
    double sum = 0, step = seconds / STEPS;
    for (int i = 0; i < STEPS; i++) {
        int threads = kn_pace_threads(p, cpus);
        double free = cpus - taken, got = threads < free ? threads : free;
        assert_in_range(threads, 1, cpus);
        kn_pace_note(p, cpus, step, got * step);
        sum += threads;
    }
    return sum / STEPS;
}

static void test_all_while_nothing_is_taken(void **state) {
    (void)state;
    kn_pace p = {0};
    assert_true(work(&p, 8, 0, 100) == 8);
    assert_true(work(&p, 8, 0.2, 100) == 8);     // an accident
    assert_int_equal(kn_pace_threads(&p, 3), 3); // fewer are asked for
}

static void test_as_many_left_out_as_are_taken(void **state) {
    (void)state;
    kn_pace p = {0};
    work(&p, 8, 2, 1);
    double used = work(&p, 8, 2, 40);
    assert_true(used > 5.9 && used < 6.3); // tries are a twentieth of the time
    assert_true(work(&p, 8, 7.5, 40) < 1.2);
    assert_true(work(&p, 8, 0, 40) > 7); // and back
    assert_int_equal(kn_pace_threads(&p, 8), 8);
}

static void test_one_is_the_minimum(void **state) {
    (void)state;
    kn_pace p = {0}, alone = {0};
    work(&p, 2, 1.6, 1);
    assert_int_equal(kn_pace_threads(&p, 2), 1);
    assert_true(work(&p, 2, 1.6, 100) == 1); // not even one has a CPU of its own: nothing is tried
    assert_true(work(&alone, 1, 0.9, 10) == 1);
}

static int idle_cpus;

static int idle(void) {
    return idle_cpus;
}

static void test_idle_cpus_are_hoped_for(void **state) {
    (void)state;
    kn_pace p = {.idle = idle};
    idle_cpus = 0;
    assert_int_equal(kn_pace_threads(&p, 4), 1);
    assert_true(work(&p, 4, 0, 10) == 1); // busy whenever it looks
    idle_cpus = 3;
    work(&p, 4, 0, 1);
    assert_int_equal(kn_pace_threads(&p, 4), 3);
    idle_cpus = 100;
    work(&p, 4, 0, 1);
    assert_int_equal(kn_pace_threads(&p, 4), 4);
    assert_in_range(kn_cpus_idle(), 0, sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_nonsense_is_no_limit),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_all_while_nothing_is_taken),
        cmocka_unit_test(test_as_many_left_out_as_are_taken),
        cmocka_unit_test(test_one_is_the_minimum),
        cmocka_unit_test(test_idle_cpus_are_hoped_for),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
