#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

// How long a worker looks for new work before it sleeps: the gap between two products of one layer is
// tens of microseconds, and waking a sleeper costs as much again.
enum { SPINS = 4000 };

static struct {
    pthread_mutex_t caller; // one kn_parallel at a time
    pthread_mutex_t mutex;  // guards sleeping and waking
    pthread_cond_t wake;
    pthread_t threads[KN_THREADS_MAX];
    atomic_int wanted;      // workers, the caller included; 0: not chosen yet. Read without the mutexes
    int running;            // those started, the caller included; guarded by `caller`
    atomic_uint generation; // grows with each piece of work
    atomic_int sleepers;
    atomic_int busy; // helpers that have not yet left the current work
    atomic_bool quit;
    kn_task *run;
    void *context;
    size_t tasks;
    atomic_size_t next;
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER};

static _Thread_local int self = -1; // worker number while inside a task

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

static void run_tasks(int worker) {
    self = worker;
    for (size_t i; (i = atomic_fetch_add(&pool.next, 1)) < pool.tasks;) pool.run(pool.context, i, worker);
    self = -1;
}

static void wait_for_work(unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool.generation) != seen) return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleepers, 1);
    while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.mutex);
}

static void *helper(void *argument) {
    int worker = (int)(size_t)argument;
    // Helpers start before the first work of their pool is published, under generation 0 of it.
    for (unsigned seen = 0;;) {
        wait_for_work(seen);
        seen = atomic_load(&pool.generation);
        if (atomic_load(&pool.quit)) return NULL;
        run_tasks(worker);
        atomic_fetch_sub(&pool.busy, 1);
    }
}

static void publish(void) {
    atomic_fetch_add(&pool.generation, 1);
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
}

static void stop_helpers(void) {
    if (pool.running <= 1) return;
    atomic_store(&pool.quit, true);
    publish();
    for (int i = 1; i < pool.running; i++) pthread_join(pool.threads[i], NULL);
    pool.running = 1;
}

static void start_helpers(void) {
    atomic_store(&pool.quit, false);
    atomic_store(&pool.generation, 0);
    pool.running = 1;
    // Fewer threads than wanted only make it slower.
    while (pool.running < atomic_load(&pool.wanted) &&
           pthread_create(&pool.threads[pool.running], NULL, helper, (void *)(size_t)pool.running) == 0)
        pool.running++;
}

static int core_count(void) {
    cpu_set_t set;
    long cores =
        sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > KN_THREADS_MAX ? KN_THREADS_MAX : (int)cores;
}

int kn_threads(void) {
    int wanted = atomic_load(&pool.wanted);
    if (wanted) return wanted;
    int cores = core_count();
    // Several threads may arrive here first, one of them in kn_threads_set: what was set before stays.
    return atomic_compare_exchange_strong(&pool.wanted, &wanted, cores) ? cores : wanted;
}

knnlm_status kn_threads_set(int threads) {
    if (threads < 0 || threads > KN_THREADS_MAX)
        return kn_fail(KNNLM_EINVAL, "%d threads asked for: 1 to %d are possible (0: one a core)", threads,
                       KN_THREADS_MAX);
    if (self >= 0) return kn_fail(KNNLM_EINVAL, "the number of threads cannot change inside a parallel task");
    pthread_mutex_lock(&pool.caller);
    stop_helpers();
    atomic_store(&pool.wanted, threads ? threads : core_count());
    pthread_mutex_unlock(&pool.caller);
    return KNNLM_OK;
}

void kn_parallel(size_t tasks, kn_task *run, void *context) {
    if (self >= 0 || tasks <= 1 || kn_threads() == 1) {
        int worker = self >= 0 ? self : 0;
        for (size_t i = 0; i < tasks; i++) run(context, i, worker);
        return;
    }
    pthread_mutex_lock(&pool.caller);
    if (pool.running <= 1) start_helpers(); // none yet, or stopped by kn_threads_set
    pool.run = run;
    pool.context = context;
    pool.tasks = tasks;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.busy, pool.running - 1);
    publish();
    run_tasks(0);
    for (int i = 0; atomic_load(&pool.busy) > 0; i++) {
        if (i < SPINS)
            pause_briefly();
        else
            sched_yield(); // a helper was descheduled in the middle of a task
    }
    pthread_mutex_unlock(&pool.caller);
}
