#include "base/pace.h"

#include <math.h>

// Seconds over which a decision is made: a time slice of the system's or two.
static const double DECIDED = 5e-3;
// CPUs missing that are no accident.
static const double TAKEN = 0.25;
static const double PATIENCE_LEAST = 0.1, PATIENCE_MOST = 4;

int kn_pace_threads(kn_pace *p, int most) {
    if (p->threads == 0) *p = (kn_pace){.threads = most, .patience = PATIENCE_LEAST};
    if (p->threads > most) p->threads = most;
    return p->threads;
}

static void leave_out(kn_pace *p, double missing) {
    if (p->trying) p->patience = fmin(2 * p->patience, PATIENCE_MOST);
    p->trying = false;
    p->quiet = 0;
    p->threads -= (int)ceil(missing);
    if (p->threads < 1) p->threads = 1;
}

static void take_heart(kn_pace *p, int most) {
    p->quiet += p->wall;
    if (p->quiet < p->patience) return;
    p->quiet = 0;
    if (p->threads == most) p->patience = PATIENCE_LEAST;
    p->trying = p->threads < most;
    p->threads = most;
}

void kn_pace_note(kn_pace *p, int most, double wall, double cpu) {
    p->wall += wall;
    p->cpu += cpu;
    if (p->wall < DECIDED) return;
    double missing = p->threads - p->cpu / p->wall;
    if (missing > TAKEN)
        leave_out(p, missing);
    else
        take_heart(p, most);
    p->wall = p->cpu = 0;
}
