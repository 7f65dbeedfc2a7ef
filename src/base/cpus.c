// Counts the CPUs that the process may use, by its affinity and its cgroups, and those that are idle.
#include "base/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The first line of a small file; false when it cannot be read.
static bool read_line(const char *folder, const char *name, char *out, int size) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = n > 0 && n < PATH_MAX ? fopen(path, "re") : NULL;
    bool got = file && fgets(out, size, file);
    if (file) fclose(file);
    return got;
}

// `text` is QUOTA PERIOD in microseconds; "max", or a quota of -1, is no limit.
static int whole_cpus(const char *text) {
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    long long cpus = quota / period;
    return cpus < 1 ? 1 : cpus > INT_MAX ? INT_MAX : (int)cpus;
}

static int limit_of(const char *folder) {
    char text[64], period[32];
    if (read_line(folder, "cpu.max", text, sizeof text)) return whole_cpus(text);
    if (!read_line(folder, "cpu.cfs_quota_us", text, 32)) return 0;
    if (!read_line(folder, "cpu.cfs_period_us", period, sizeof period)) return 0;
    text[strcspn(text, "\n")] = ' ';
    strcat(text, period);
    return whole_cpus(text);
}

static int smaller(int a, int b) { // 0: no limit
    return a == 0 || (b > 0 && b < a) ? b : a;
}

// Of a group and those around it. In a container the list may name the group as seen from outside: then only
// the root is there, and it is the container's own.
static int limit_upward(const char *root, const char *group) {
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s", root, group), limit = 0;
    if (n < 0 || n >= PATH_MAX) return limit_of(root);
    for (size_t top = strlen(root);;) {
        limit = smaller(limit, limit_of(folder));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash) return limit;
        *(slash < folder + top ? folder + top : slash) = 0;
    }
}

// The line of version 2 is "0::/GROUP", one of version 1 "4:cpu,cpuacct:/GROUP".
static int limit_of_line(char *line, const char *root) {
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return 0;
    *group++ = 0;
    controllers++;
    group[strcspn(group, "\n")] = 0;
    if (*controllers == 0) return limit_upward(root, group);
    bool ours = false;
    for (char *name; (name = strsep(&controllers, ","));) ours = ours || strcmp(name, "cpu") == 0;
    if (!ours) return 0;
    // "cpu" is a link to the folder of them all, where it is not its name.
    int n = snprintf(mount, sizeof mount, "%s/cpu", root);
    return n > 0 && n < PATH_MAX ? limit_upward(mount, group) : 0;
}

int kn_cgroup_cpus(const char *list, const char *root) {
    char line[PATH_MAX];
    int limit = 0;
    FILE *file = fopen(list, "re");
    while (file && fgets(line, sizeof line, file)) limit = smaller(limit, limit_of_line(line, root));
    if (file) fclose(file);
    return limit;
}

int kn_cpus(void) {
    cpu_set_t set;
    long cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    int paid = kn_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (paid > 0 && paid < cpus) cpus = paid;
    return cpus < 1 ? 1 : cpus > INT_MAX ? INT_MAX : (int)cpus;
}

// The fourth of "0.20 0.18 0.12 1/80 11206": threads that run or could, this one among them.
int kn_cpus_idle(void) {
    char line[128];
    int running = 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (!read_line("/proc", "loadavg", line, sizeof line) || sscanf(line, "%*f %*f %*f %d/", &running) != 1 ||
        running < 1)
        running = 1;
    cpus -= running - 1;
    return cpus < 0 ? 0 : cpus > INT_MAX ? INT_MAX : (int)cpus;
}
