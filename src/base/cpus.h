// How many CPUs the process may use.
#ifndef KN_BASE_CPUS_H
#define KN_BASE_CPUS_H

// The least of what the machine has, what the affinity mask allows (taskset) and what the control group's
// quota pays for (containers); at least 1.
int kn_cpus(void);

// CPUs of the machine that no thread but the calling one uses at this moment; all of them where the system
// does not tell. Costs some microseconds.
int kn_cpus_idle(void);

// CPUs that control groups pay for, or 0 where there is no limit. `list` names the groups of the process, as
// /proc/self/cgroup does, and `root` is where their files are, as /sys/fs/cgroup: version 2 has
// GROUP/cpu.max, version 1 has cpu/GROUP/cpu.cfs_quota_us. A group is limited by those around it, too. Half a
// CPU more is none: a thread more than is paid for makes all of them wait.
int kn_cgroup_cpus(const char *list, const char *root);

#endif
