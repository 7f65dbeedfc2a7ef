// Muon (Jordan et al. 2024): the momentum of a matrix is replaced by the nearest orthogonal matrix before it
// is applied, so that all of its directions are learnt at one pace. Short runs on a CPU see few tokens: an
// update that learns more from each is worth its cost, some Newton-Schulz iterations a matrix.
#include "train/optimizer.h"

#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS = 5 };

// One matrix of a parameter: (rows, columns) at params + offset. The fused query, key and value matrix counts
// as three.
typedef struct part {
    size_t offset, rows, columns;
} part;

typedef struct job {
    const kn_optimizer *o;
    float *params;
    const float *grads;
    float scale, rate;
    const part *parts;
    char *scratch;
    size_t stride;
} job;

// Scratch of one worker; `small` is the shorter side of the largest matrix, `large` the longer one.
typedef struct scratch {
    float *x, *gram, *poly; // (small, large), (small, small) twice
    void *left;
    kn_rhs right;
} scratch;

static size_t round64(size_t n) {
    return (n + 63) / 64 * 64;
}

static size_t lay_out(const kn_kernels *k, size_t small, size_t large, char *base, scratch *s) {
    size_t used = 0;
#define TAKE(field, bytes)                                                                                   \
    s->field = (void *)(base + used);                                                                        \
    used += round64(bytes)
    TAKE(x, small * large * sizeof(float));
    TAKE(gram, small * small * sizeof(float));
    TAKE(poly, small * small * sizeof(float));
    TAKE(left, kn_lhs_bytes(k, small, large));
    TAKE(right.data,
         kn_max(kn_cells(small) * kn_panel_bytes(k, large), kn_cells(large) * kn_panel_bytes(k, small)));
#undef TAKE
    return used;
}

// out (rows, columns) = [out +] a (rows, depth) . b, b being (columns, depth), or (depth, columns) when
// `turned`.
static void product(const kn_kernels *k, scratch *s, float *out, const float *a, size_t rows, size_t depth,
                    const float *b, size_t columns, bool turned, bool add) {
    kn_emit_matrix store = {k, out, columns, NULL};
    s->right.columns = columns;
    s->right.depth = depth;
    kn_lhs_pack(k, s->left, a, depth, rows, depth, false);
    kn_rhs_pack(k, &s->right, b, turned ? columns : depth, turned);
    kn_multiply(k, s->left, rows, &s->right, add ? kn_emit_add : kn_emit_set, &store);
}

// x (n, m), n <= m, becomes nearly orthogonal: its singular values move to about 1.
static void orthogonalise(const kn_kernels *k, scratch *s, size_t n, size_t m) {
    k->scale(s->x, (float)(1.0 / (sqrt(k->sum_squares(s->x, n * m)) + 1e-12)), n * m);
    for (int i = 0; i < ITERATIONS; i++) { // x = a x + (b G + c G^2) x, G = x x^T
        product(k, s, s->gram, s->x, n, m, s->x, n, false, false);
        product(k, s, s->poly, s->gram, n, n, s->gram, n, false, false); // G is symmetric
        k->scale(s->poly, 2.0315f, n * n);
        k->axpy(s->poly, -4.7750f, s->gram, n * n);
        for (size_t j = 0; j < n; j++) s->poly[j * n + j] += 3.4445f;
        // The product reads x while it is packed, before it is overwritten.
        product(k, s, s->x, s->poly, n, n, s->x, m, true, false);
    }
}

static void update_part(void *context, size_t task, int worker) {
    const job *j = context;
    const kn_optimizer *o = j->o;
    const part *p = &j->parts[task];
    size_t n = kn_min(p->rows, p->columns), m = kn_max(p->rows, p->columns), count = n * m;
    float *moment = o->first + p->offset, *w = j->params + p->offset, momentum = o->options.muon_momentum;
    scratch s;
    lay_out(o->k, n, m, j->scratch + (size_t)worker * j->stride, &s);
    o->k->scale(moment, momentum, count);
    o->k->axpy(moment, j->scale, j->grads + p->offset, count);
    bool turned = p->rows > p->columns; // x has its shorter side first
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++) {
            size_t at = r * p->columns + c;
            s.x[turned ? c * p->rows + r : at] = j->scale * j->grads[p->offset + at] + momentum * moment[at];
        }
    orthogonalise(o->k, &s, n, m);
    // An orthogonal matrix has entries of about 1/sqrt(m): bring updates to the size of AdamW's, to share its
    // rate.
    float step = j->rate * 0.2f * sqrtf((float)m);
    o->k->scale(w, 1.0f - j->rate * o->options.decay, count);
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            w[r * p->columns + c] -= step * s.x[turned ? c * p->rows + r : r * p->columns + c];
}

bool kn_muon_takes(const kn_param *p) {
    return !p->is_vector && strncmp(p->name, "blk.", 4) == 0;
}

static size_t list_parts(const kn_layout *layout, part *out) {
    size_t count = 0;
    for (size_t i = 0; i < layout->count; i++) {
        const kn_param *p = &layout->params[i];
        if (!kn_muon_takes(p)) continue;
        size_t pieces = strstr(p->name, "attn_qkv") ? 3 : 1, rows = p->rows / pieces;
        for (size_t n = 0; n < pieces; n++)
            if (out)
                out[count++] = (part){p->offset + n * rows * p->columns, rows, p->columns};
            else
                count++;
    }
    return count;
}

knnlm_status kn_muon_update(kn_optimizer *o, float *params, const float *grads, float scale, double rate) {
    size_t count = list_parts(o->layout, NULL), small = 1, large = 1;
    part *parts = kn_alloc(count, sizeof *parts);
    if (!parts) return KNNLM_ENOMEM;
    list_parts(o->layout, parts);
    for (size_t i = 0; i < count; i++) {
        small = kn_max(small, kn_min(parts[i].rows, parts[i].columns));
        large = kn_max(large, kn_max(parts[i].rows, parts[i].columns));
    }
    scratch unused;
    static char origin[1]; // only differences matter
    size_t stride = lay_out(o->k, small, large, origin, &unused);
    job j = {o,     params, grads, scale, (float)rate, parts, kn_alloc_aligned((size_t)kn_threads(), stride),
             stride};
    if (j.scratch) kn_parallel(count, update_part, &j);
    kn_free_aligned(j.scratch);
    free(parts);
    return j.scratch ? KNNLM_OK : KNNLM_ENOMEM;
}
