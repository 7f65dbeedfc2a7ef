// The process's thread pool: workers spin shortly for the next parallel loop, then sleep.
#include "base/threads.h"

#include "base/cpus.h"
#include "base/progress.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

// How long a thread at most looks for what it waits for before it sleeps: the gap between two products of one
// layer is tens of microseconds, and waking a sleeper costs as much again. In time, not in turns of a loop,
// of which a CPU does ten or two hundred per microsecond.
static const double SPIN = 50e-6;

static struct {
    pthread_mutex_t caller; // one kn_parallel at a time
    pthread_mutex_t mutex;  // guards sleeping and waking
    pthread_cond_t wake, finished;
    pthread_t threads[KN_THREADS_MAX];
    atomic_int wanted; // workers, the caller included; 0: not chosen yet. Read without the mutexes
    int running;       // those started, the caller included; guarded by `caller`
    atomic_bool quit;
    // The work. Who takes a task by lowering `left` may read the rest: it changes when all tasks taken are
    // done. A helper that is late, or that the system does not let run, has taken none, and nobody waits for
    // it.
    atomic_size_t left; // tasks that nobody has taken
    atomic_size_t done; // tasks that helpers have taken and done
    kn_parallel_task *run;
    void *context;
    size_t tasks;
    atomic_int sleepers;       // helpers that wait for `wake`
    atomic_bool caller_sleeps; // it waits for `finished`
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static _Thread_local int self = -1; // worker number while inside a task

// Takes tasks until there are none; how many it did.
static size_t run_tasks(int worker) {
    size_t did = 0;
    self = worker;
    for (size_t left = atomic_load(&pool.left); left > 0;) {
        if (!atomic_compare_exchange_weak(&pool.left, &left, left - 1)) continue;
        pool.run(pool.context, pool.tasks - left, worker);
        did++;
        left = atomic_load(&pool.left);
    }
    self = -1;
    return did;
}

// ---------------------------------------------------------------- waiting

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

// Looks for something `ready` for as long as that has paid lately: when it did not come in time, half as long
// the next time; when it came soon after, in full again. *begun is when it began to wait.
static bool spin(bool (*ready)(size_t), size_t argument, double limit, double *begun) {
    enum { TURNS = 8 }; // between looks at the clock
    if (ready(argument)) return true;
    *begun = kn_seconds();
    do {
        for (int i = 0; i < TURNS; i++, pause_briefly())
            if (ready(argument)) return true;
    } while (kn_seconds() - *begun < limit);
    return false;
}

// After a sleep.
static double next_limit(double limit, double begun) {
    return kn_seconds() - begun < SPIN ? SPIN : limit / 2;
}

static bool work_there(size_t argument) {
    (void)argument;
    return atomic_load(&pool.left) > 0 || atomic_load(&pool.quit);
}

static bool helpers_done(size_t tasks) {
    return atomic_load(&pool.done) == tasks;
}

static void wait_for_work(double *limit) {
    double begun;
    if (spin(work_there, 0, *limit, &begun)) return;
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleepers, 1);
    while (!work_there(0)) pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.mutex);
    *limit = next_limit(*limit, begun);
}

static void wait_for_helpers(size_t tasks) {
    static double limit = SPIN; // guarded by pool.caller
    double begun;
    if (spin(helpers_done, tasks, limit, &begun)) return;
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.caller_sleeps, true);
    while (!helpers_done(tasks)) pthread_cond_wait(&pool.finished, &pool.mutex);
    atomic_store(&pool.caller_sleeps, false);
    pthread_mutex_unlock(&pool.mutex);
    limit = next_limit(limit, begun);
}

static void wake(pthread_cond_t *condition, size_t threads) {
    pthread_mutex_lock(&pool.mutex);
    while (threads-- > 0) pthread_cond_signal(condition);
    pthread_mutex_unlock(&pool.mutex);
}

// As many of those who sleep as there are tasks for, beside the caller.
static void wake_helpers(size_t tasks) {
    size_t sleepers = (size_t)atomic_load(&pool.sleepers);
    if (sleepers > 0) wake(&pool.wake, sleepers < tasks ? sleepers : tasks);
}

// ---------------------------------------------------------------- helpers

static void *helper(void *argument) {
    int worker = (int)(size_t)argument;
    double limit = SPIN;
    for (;;) {
        wait_for_work(&limit);
        if (atomic_load(&pool.quit)) return NULL;
        size_t did = run_tasks(worker);
        if (did == 0) continue;
        atomic_fetch_add(&pool.done, did);
        if (atomic_load(&pool.caller_sleeps)) wake(&pool.finished, 1);
    }
}

static void stop_helpers(void) {
    if (pool.running <= 1) return;
    atomic_store(&pool.quit, true);
    wake(&pool.wake, (size_t)pool.running);
    for (int i = 1; i < pool.running; i++) pthread_join(pool.threads[i], NULL);
    pool.running = 1;
}

static void start_helpers(void) {
    atomic_store(&pool.quit, false);
    pool.running = 1;
    // Fewer threads than wanted only make it slower.
    while (pool.running < atomic_load(&pool.wanted) &&
           pthread_create(&pool.threads[pool.running], NULL, helper, (void *)(size_t)pool.running) == 0)
        pool.running++;
}

static int core_count(void) {
    int cores = kn_cpus();
    return cores > KN_THREADS_MAX ? KN_THREADS_MAX : cores;
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
        return kn_fail(KNNLM_EINVAL, "%d threads asked for: 1 to %d are possible (0: one per CPU)", threads,
                       KN_THREADS_MAX);
    if (self >= 0) return kn_fail(KNNLM_EINVAL, "the number of threads cannot change inside a parallel task");
    pthread_mutex_lock(&pool.caller);
    stop_helpers();
    atomic_store(&pool.wanted, threads ? threads : core_count());
    pthread_mutex_unlock(&pool.caller);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- work

// Whether helpers pay. On a busy machine they may not: the system takes the CPU from one in the middle of a
// task, and the caller waits until it is given back. The CPU time of the caller's own tasks tells what all of
// them would cost it alone, and how long that is by the clock is known from when it last worked alone. Where
// together took longer, it works alone for a multiple of what was lost, so that tries in vain cost little.
static struct {
    double together,
        cpu;            // seconds since the last decision: by the clock, and those that all tasks would cost
    double until;       // it works alone until then; 0: it does not
    double alone, used; // while it did: by the clock, and of CPU time
} pay;                  // guarded by pool.caller

static const double DECIDED = 5e-3, PATIENCE = 20, PATIENCE_MAX = 1;

static void decide(double now) {
    if (pay.together < DECIDED) return;
    double slower = pay.used > 0 ? pay.alone / pay.used : 1;
    double lost = pay.together - pay.cpu * slower;
    pay.until = lost > 0 ? now + fmin(PATIENCE * lost, PATIENCE_MAX) : 0;
    pay.together = pay.cpu = 0;
    if (lost > 0) pay.alone = pay.used = 0; // found out anew
}

// Tasks from the first on, for as long as helpers are thought not to pay; how many.
static size_t run_alone(void) {
    size_t did = 0;
    double begun = pay.until > 0 ? kn_seconds() : 0, now = begun;
    if (now >= pay.until) return 0;
    double cpu = kn_thread_seconds();
    self = 0;
    for (; did < pool.tasks && now < pay.until; now = kn_seconds()) pool.run(pool.context, did++, 0);
    self = -1;
    pay.alone += now - begun;
    pay.used += kn_thread_seconds() - cpu;
    return did;
}

// The last `tasks` of the work.
static void run_together(size_t tasks) {
    double begun = kn_seconds(), cpu = kn_thread_seconds();
    atomic_store(&pool.done, 0);
    atomic_store(&pool.left, tasks);
    wake_helpers(tasks - 1);
    size_t mine = run_tasks(0);
    cpu = kn_thread_seconds() - cpu;
    wait_for_helpers(tasks - mine);
    if (mine == 0) return; // says nothing
    double now = kn_seconds();
    pay.together += now - begun;
    pay.cpu += cpu * (double)tasks / (double)mine;
    decide(now);
}

void kn_parallel(size_t tasks, kn_parallel_task *run, void *context) {
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
    size_t rest = tasks - run_alone();
    if (rest > 0) run_together(rest);
    pthread_mutex_unlock(&pool.caller);
}
