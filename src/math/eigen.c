// Three steps, each n^3: reflections (Householder) make the matrix tridiagonal, rotations (QL with implicit
// shifts) make that diagonal, and the eigenvectors so found are reflected back. All of them walk along rows,
// and all are cut into tasks by shape alone. Divide and conquer would spare much of the second step, which is
// half of the time at n = 1024 and a third at 4096; it would also be the longest code of the room.
#include "math/eigen.h"

#include "base/memory.h"
#include "base/threads.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PASS_ROWS = 64,  // of the matrix a task reflects
    BACK_ROWS = 8,   // eigenvectors a task reflects back: a reflection is read once for all of them
    PANEL = 32,      // columns a task rotates: a panel of 1024 rows stays in the L2 cache
    BATCH = 16,      // rotations, times n, that are gathered before they are applied
    SWEEPS_MAX = 50, // a value; two are usual
    EXPONENT_MAX = 1000
};

typedef struct rotation { // of rows row and row + 1
    double cosine, sine;
    size_t row;
} rotation;

typedef struct ranked {
    double value;
    size_t index;
} ranked;

typedef struct solver {
    size_t n;
    double scale;   // takes eigenvalues back to the size of the matrix given
    char *memory;   // of what stands below but for the panels
    double *matrix; // (n,n); after reflecting, row k from column k + 1 on is the k-th reflection's vector
    double *d, *e, *tau; // (n): diagonal, the one beside it, factors of the reflections
    double *w, *product; // (n)
    size_t step;         // of the reflecting
    double *panels;      // [panels][n rows][PANEL columns]: row i becomes the i-th tridiagonal eigenvector
    size_t panel_count;
    rotation *rotations; // gathered, to be applied to the panels
    size_t rotation_count;
    ranked *order; // (n): largest value first
    double *vectors;
} solver;

// ---------------------------------------------------------------- loops along rows

// Sums are kept in eight lanes: the compiler may not reorder a sum of doubles by itself.
enum { LANES = 8 };

static double add_lanes(const double *s) {
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static double dot(const double *a, const double *b, size_t n) {
    double sum[LANES] = {0}, rest = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) sum[l] += a[i + l] * b[i + l];
    for (; i < n; i++) rest += a[i] * b[i];
    return add_lanes(sum) + rest;
}

// y -= a x
static void subtract(double *restrict y, double a, const double *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] -= a * x[i];
}

// y -= a x + b z; returns y . u
static double subtract_dot(double *restrict y, double a, const double *restrict x, double b,
                           const double *restrict z, const double *restrict u, size_t n) {
    double sum[LANES] = {0}, rest = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            y[i + l] -= a * x[i + l] + b * z[i + l];
            sum[l] += y[i + l] * u[i + l];
        }
    for (; i < n; i++) {
        y[i] -= a * x[i] + b * z[i];
        rest += y[i] * u[i];
    }
    return add_lanes(sum) + rest;
}

// ---------------------------------------------------------------- to a tridiagonal matrix

// x (n) becomes v, v[0] = 1, such that I - tau v vT takes the old x to (*beside, 0, ...).
static double make_reflection(double *x, size_t n, double *beside) {
    double first = x[0], squares = dot(x + 1, x + 1, n - 1), length = sqrt(first * first + squares), tau = 0;
    *beside = first;
    // Below 1e-140 (the matrix is scaled to about 1) squares lose digits, and v its length: as good as zero.
    if (length < 1e-140) *beside = squares = 0;
    if (squares > 0) {
        *beside = first > 0 ? -length : length;
        tau = (*beside - first) / *beside;
        double scale = 1 / (first - *beside);
        for (size_t i = 1; i < n; i++) x[i] *= scale;
    }
    x[0] = 1;
    return tau;
}

// For some rows below the step's: what the reflection before has left to do, and the product with this one's
// vector. Both in one pass over the matrix, because memory, not arithmetic, is what takes the time.
static void pass_rows(void *context, size_t task, int worker) {
    const solver *s = context;
    size_t k = s->step, n = s->n, from = k + 1, length = n - from;
    size_t first = from + task * PASS_ROWS, last = kn_min(first + PASS_ROWS, n);
    const double *v = s->matrix + k * n, *before = k ? v - n : NULL;
    (void)worker;
    for (size_t i = first; i < last; i++) {
        double *row = s->matrix + i * n + from;
        s->product[i] =
            before ? subtract_dot(row, before[i], s->w + from, s->w[i], before + from, v + from, length)
                   : dot(row, v + from, length);
    }
}

static void reflect_matrix(solver *s) {
    size_t n = s->n;
    for (size_t k = 0; k + 1 < n; k++) {
        size_t from = k + 1, length = n - from;
        double *v = s->matrix + k * n, *next = v + n;
        s->d[k] = v[k];
        s->tau[k] = make_reflection(v + from, length, &s->e[k]);
        s->step = k;
        kn_parallel((length + PASS_ROWS - 1) / PASS_ROWS, pass_rows, s);
        double half = s->tau[k] * s->tau[k] / 2 * dot(s->product + from, v + from, length);
        for (size_t i = from; i < n; i++) s->w[i] = s->tau[k] * s->product[i] - half * v[i];
        // The next row at once, for the next reflection is made of it; the others in the next pass.
        for (size_t i = from; i < n; i++) next[i] -= v[from] * s->w[i] + s->w[from] * v[i];
    }
    s->d[n - 1] = s->matrix[n * n - 1];
}

// ---------------------------------------------------------------- to a diagonal matrix

// Its part of the identity matrix.
static void clear_panel(void *context, size_t task, int worker) {
    const solver *s = context;
    double *panel = s->panels + task * s->n * PANEL;
    (void)worker;
    memset(panel, 0, s->n * PANEL * sizeof *panel);
    for (size_t i = task * PANEL; i < kn_min((task + 1) * PANEL, s->n); i++) panel[i * PANEL + i % PANEL] = 1;
}

static void rotate_panel(void *context, size_t task, int worker) {
    const solver *s = context;
    double *panel = s->panels + task * s->n * PANEL;
    (void)worker;
    for (size_t r = 0; r < s->rotation_count; r++) {
        double c = s->rotations[r].cosine, z = s->rotations[r].sine;
        double *restrict low = panel + s->rotations[r].row * PANEL, *restrict high = low + PANEL;
        for (size_t i = 0; i < PANEL; i++) {
            double old = high[i];
            high[i] = z * low[i] + c * old;
            low[i] = c * low[i] - z * old;
        }
    }
}

static void apply_rotations(solver *s) {
    kn_parallel(s->panel_count, rotate_panel, s);
    s->rotation_count = 0;
}

// One QL sweep over rows first..last of the tridiagonal matrix, shifted by the eigenvalue of its upper corner
// that is nearer to d[first] (Wilkinson): e[first] goes to zero, cubically.
static void sweep(solver *s, size_t first, size_t last) {
    double *d = s->d, *e = s->e;
    double slope = (d[first + 1] - d[first]) / (2 * e[first]), root = sqrt(slope * slope + 1);
    double g = d[last] - d[first] + e[first] / (slope + (slope < 0 ? -root : root));
    double sine = 1, cosine = 1, shift = 0;
    if (s->rotation_count + (last - first) > BATCH * s->n) apply_rotations(s);
    for (size_t i = last; i-- > first;) {
        double f = sine * e[i], b = cosine * e[i], r = sqrt(f * f + g * g);
        cosine = r > 0 ? g / r : 1;
        sine = r > 0 ? f / r : 0;
        if (i + 1 < last) e[i + 1] = r;
        g = d[i + 1] - shift;
        r = (d[i] - g) * sine + 2 * cosine * b;
        shift = sine * r;
        d[i + 1] = g + shift;
        g = cosine * r - b;
        s->rotations[s->rotation_count++] = (rotation){cosine, sine, i};
    }
    d[first] -= shift;
    e[first] = g;
}

// Entries beside the diagonal count as zero below this: dropping them moves no eigenvalue by more than the
// reflections' rounding has done.
static double negligible(const solver *s) {
    double largest = 0;
    for (size_t i = 0; i < s->n; i++) largest = fmax(largest, fmax(fabs(s->d[i]), fabs(s->e[i])));
    return largest * (DBL_EPSILON / 2);
}

static knnlm_status diagonalise(solver *s) {
    double min = negligible(s);
    kn_parallel(s->panel_count, clear_panel, s);
    for (size_t first = 0; first < s->n; first++) {
        for (int sweeps = 0;; sweeps++) {
            size_t last = first;
            while (last + 1 < s->n && fabs(s->e[last]) > min) last++;
            if (last == first) break;
            if (sweeps == SWEEPS_MAX)
                return kn_fail(KNNLM_EDATA, "eigenvalue %zu of %zu: not found in %d sweeps", first, s->n,
                               SWEEPS_MAX);
            sweep(s, first, last);
        }
    }
    apply_rotations(s);
    return KNNLM_OK;
}

// ---------------------------------------------------------------- back

static int by_value(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static void reflect_back(void *context, size_t task, int worker) {
    const solver *s = context;
    size_t n = s->n, first = task * BACK_ROWS, last = kn_min(first + BACK_ROWS, n);
    (void)worker;
    for (size_t i = first; i < last; i++)
        for (size_t p = 0; p < s->panel_count; p++)
            memcpy(s->vectors + i * n + p * PANEL, s->panels + (p * n + s->order[i].index) * PANEL,
                   kn_min(PANEL, n - p * PANEL) * sizeof *s->vectors);
    for (size_t k = n - 1; k-- > 0;) {
        const double *v = s->matrix + k * n + k + 1;
        if (s->tau[k] == 0) continue;
        for (size_t i = first; i < last; i++) {
            double *x = s->vectors + i * n + k + 1;
            subtract(x, s->tau[k] * dot(x, v, n - k - 1), v, n - k - 1);
        }
    }
}

static void make_vectors(solver *s, double *values) {
    for (size_t i = 0; i < s->n; i++) s->order[i] = (ranked){s->d[i], i};
    qsort(s->order, s->n, sizeof *s->order, by_value);
    for (size_t i = 0; i < s->n; i++) values[i] = s->order[i].value * s->scale;
    kn_parallel((s->n + BACK_ROWS - 1) / BACK_ROWS, reflect_back, s);
}

// ---------------------------------------------------------------- all of it

// Brings the largest entry to about 1, so that no square overflows or vanishes; by a power of two, so that no
// bit changes.
static knnlm_status scale_matrix(solver *s) {
    double largest = 0;
    int exponent;
    for (size_t i = 0; i < s->n * s->n; i++) {
        if (!isfinite(s->matrix[i]))
            return kn_fail(KNNLM_EDATA,
                           "a matrix to find the eigenvalues of: not finite at row %zu, column %zu", i / s->n,
                           i % s->n);
        largest = fmax(largest, fabs(s->matrix[i]));
    }
    frexp(largest, &exponent);
    exponent = exponent > EXPONENT_MAX ? EXPONENT_MAX : exponent < -EXPONENT_MAX ? -EXPONENT_MAX : exponent;
    s->scale = ldexp(1, exponent);
    for (size_t i = 0; i < s->n * s->n; i++) s->matrix[i] *= ldexp(1, -exponent);
    return KNNLM_OK;
}

static knnlm_status make_room(solver *s) {
    size_t n = s->n, entries, vector = n * sizeof(double), used = 0;
    if (!kn_mul(s->panel_count, n * PANEL, &entries))
        return kn_fail(KNNLM_ENOMEM, "a matrix of %zu rows overflows", n);
    if (!(s->panels = kn_alloc_aligned(entries, sizeof *s->panels))) return KNNLM_ENOMEM;
    size_t vectors = 5 * (vector + 64), lists = n * (BATCH * sizeof(rotation) + sizeof(ranked)) + 128;
    if (!(s->memory = kn_alloc(1, vectors + lists))) return KNNLM_ENOMEM;
    s->d = kn_take(s->memory, &used, vector);
    s->e = kn_take(s->memory, &used, vector);
    s->tau = kn_take(s->memory, &used, vector);
    s->w = kn_take(s->memory, &used, vector);
    s->product = kn_take(s->memory, &used, vector);
    s->rotations = kn_take(s->memory, &used, n * BATCH * sizeof(rotation));
    s->order = kn_take(s->memory, &used, n * sizeof(ranked));
    return KNNLM_OK;
}

knnlm_status kn_eigen_symmetric(double *matrix, size_t n, double *values, double *vectors) {
    solver s = {.n = n, .matrix = matrix, .vectors = vectors, .panel_count = (n + PANEL - 1) / PANEL};
    if (n == 0) return KNNLM_OK;
    KN_TRY(scale_matrix(&s));
    knnlm_status status = make_room(&s);
    if (status == KNNLM_OK) {
        reflect_matrix(&s);
        status = diagonalise(&s);
    }
    if (status == KNNLM_OK) make_vectors(&s, values);
    kn_free_aligned(s.panels);
    free(s.memory);
    return status;
}
