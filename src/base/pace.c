// Takes threads away when CPUs are missing, and tries more again after a while.
#include "base/pace.h"

#include <math.h>

// Seconds over which a decision is made: a time slice of the system's or two.
static const double DECIDED = 5e-3;
// CPUs missing that are no accident.
static const double TAKEN = 0.25;
// Of what a try took: a twentieth of the time goes to tries in vain.
static const double PATIENCE = 20, PATIENCE_MIN = 0.1, PATIENCE_MAX = 10;

// As many threads as can be expected to run.
static int hopeful(const kn_pace *p, int max) {
    int idle = p->idle ? p->idle() : max;
    return idle < 1 ? 1 : idle < max ? idle : max;
}

int kn_pace_threads(kn_pace *p, int max) {
    if (p->threads == 0) p->threads = hopeful(p, max);
    if (p->threads > max) p->threads = max;
    return p->threads;
}

static void leave_out(kn_pace *p, double missing) {
    p->quiet = 0;
    if (p->threads == 1) return;
    p->patience = fmin(fmax(PATIENCE * p->wall, PATIENCE_MIN), PATIENCE_MAX);
    p->threads -= (int)ceil(missing);
    if (p->threads < 1) p->threads = 1;
}

static void take_heart(kn_pace *p, int max) {
    p->quiet += p->wall;
    if (p->threads >= max || p->quiet < p->patience) return;
    p->quiet = 0;
    int threads = hopeful(p, max);
    if (threads > p->threads) p->threads = threads;
}

void kn_pace_note(kn_pace *p, int max, double wall, double cpu) {
    p->wall += wall;
    p->cpu += cpu;
    if (p->wall < DECIDED) return;
    double missing = p->threads - p->cpu / p->wall;
    if (missing > TAKEN)
        leave_out(p, missing);
    else
        take_heart(p, max);
    p->wall = p->cpu = 0;
}
