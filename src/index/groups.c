// Two-level assignment: the groups of lists whose middles are nearest, then their lists.
#include "index/groups.h"

#include "base/threads.h"
#include "math/math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASKED = 16,    // groups that a vector is measured against
    BATCH = 32768, // vectors at a time
};

struct kn_groups {
    const kn_kernels *k;
    const kn_quantizer *quantizer;
    size_t d, count, panel; // panel: bytes
    const uint32_t *ends;   // (count + 1): of lists
    float *centres;         // (count, d)
    kn_rhs asked;           // the centres
    float *halves;          // (count rounded up to whole panels): half their squared lengths, or infinity
    // Lists by group, each group in whole panels relative to its centre:
    uint32_t *starts; // (count + 1), in panels
    uint32_t *lists;  // (panels, 32): UINT32_MAX in the padding
    char *panels;
    float *bias; // (panels, 32): -|e|^2 / 2, -infinity in the padding
};

// ---------------------------------------------------------------- making

static void subtract(float *out, const float *x, const float *centre, size_t d) {
    for (size_t i = 0; i < d; i++) out[i] = x[i] - centre[i];
}

// The middle of each group, of its lists.
static knnlm_status find_centres(kn_groups *g) {
    g->centres = kn_alloc_aligned(g->count, g->d * sizeof *g->centres);
    g->halves = kn_alloc(kn_cells(g->count) * KN_CELL, sizeof *g->halves);
    if (!g->centres || !g->halves) return KNNLM_ENOMEM;
    kn_groups_middles(kn_quantizer_centroids(g->quantizer), g->d, g->ends, g->count, g->centres);
    KN_TRY(kn_rhs_init(g->k, &g->asked, g->count, g->d));
    kn_rhs_pack(g->k, &g->asked, g->centres, g->d, false);
    for (size_t i = 0; i < kn_cells(g->count) * KN_CELL; i++)
        g->halves[i] = i < g->count ? (float)(g->k->sum_squares(g->centres + i * g->d, g->d) / 2) : INFINITY;
    return KNNLM_OK;
}

typedef struct packing {
    kn_groups *g;
    float *moved; // 32 x d a worker
} packing;

static void pack_panel(kn_groups *g, size_t group, size_t panel, float *moved) {
    const uint32_t *lists = g->lists + panel * KN_CELL;
    float *bias = g->bias + panel * KN_CELL;
    size_t n = 0;
    for (; n < KN_CELL && lists[n] != UINT32_MAX; n++) {
        const float *centroid = kn_quantizer_centroids(g->quantizer) + lists[n] * g->d;
        subtract(moved + n * g->d, centroid, g->centres + group * g->d, g->d);
        bias[n] = (float)(-g->k->sum_squares(moved + n * g->d, g->d) / 2);
    }
    for (size_t i = n; i < KN_CELL; i++) bias[i] = -INFINITY;
    g->k->pack_rhs(g->panels + panel * g->panel, moved, g->d, n, g->d);
}

static void pack_group(void *context, size_t group, int worker) {
    const packing *p = context;
    for (size_t panel = p->g->starts[group]; panel < p->g->starts[group + 1]; panel++)
        pack_panel(p->g, group, panel, p->moved + (size_t)worker * KN_CELL * p->g->d);
}

static knnlm_status pack(kn_groups *g) {
    g->starts = kn_alloc(g->count + 1, sizeof *g->starts);
    if (!g->starts) return KNNLM_ENOMEM;
    for (size_t i = 0; i < g->count; i++)
        g->starts[i + 1] = g->starts[i] + (uint32_t)kn_cells(g->ends[i + 1] - g->ends[i]);
    size_t panels = g->starts[g->count];
    packing p = {g, kn_alloc_aligned((size_t)kn_threads() * KN_CELL, g->d * sizeof(float))};
    g->lists = kn_alloc(panels * KN_CELL, sizeof *g->lists);
    g->bias = kn_alloc(panels * KN_CELL, sizeof *g->bias);
    g->panels = kn_alloc_aligned(panels, g->panel);
    bool room = p.moved && g->lists && g->bias && g->panels;
    if (room) {
        memset(g->lists, 0xff, panels * KN_CELL * sizeof *g->lists);
        for (size_t i = 0; i < g->count; i++)
            for (uint32_t l = g->ends[i]; l < g->ends[i + 1]; l++)
                g->lists[(size_t)g->starts[i] * KN_CELL + l - g->ends[i]] = l;
        kn_parallel(g->count, pack_group, &p);
    }
    kn_free_aligned(p.moved);
    return room ? KNNLM_OK : KNNLM_ENOMEM;
}

void kn_groups_middles(const float *centroids, size_t d, const uint32_t *ends, size_t groups, float *out) {
    for (size_t g = 0; g < groups; g++, out += d) {
        float share = 1 / (float)kn_max(1, ends[g + 1] - ends[g]);
        memset(out, 0, d * sizeof *out);
        for (size_t l = ends[g]; l < ends[g + 1]; l++)
            for (size_t i = 0; i < d; i++) out[i] += share * centroids[l * d + i];
    }
}

knnlm_status kn_groups_make(const kn_quantizer *q, const uint32_t *ends, size_t groups, kn_groups **out) {
    kn_groups *g = kn_alloc(1, sizeof *g);
    if (!g) return KNNLM_ENOMEM;
    *g = (kn_groups){.k = kn_math_kernels(KNNLM_PRECISION_BF16),
                     .quantizer = q,
                     .d = kn_quantizer_dimension(q),
                     .count = groups,
                     .ends = ends};
    g->panel = kn_panel_bytes(g->k, g->d);
    knnlm_status status = find_centres(g);
    if (status == KNNLM_OK) status = pack(g);
    if (status == KNNLM_OK)
        *out = g;
    else
        kn_groups_free(g);
    return status;
}

void kn_groups_free(kn_groups *g) {
    if (!g) return;
    kn_free_aligned(g->centres);
    kn_rhs_free(&g->asked);
    free(g->halves);
    free(g->starts);
    free(g->lists);
    kn_free_aligned(g->panels);
    free(g->bias);
    free(g);
}

// ---------------------------------------------------------------- asking groups

typedef struct near_list {
    float distance;
    uint32_t list;
} near_list;

typedef struct assignment {
    const kn_groups *g;
    const float *x;
    size_t n, asked;    // vectors of the batch; groups a vector
    uint32_t *groups;   // (n, asked)
    uint32_t *members;  // places in `groups`, group after group
    size_t *ends;       // (count + 2), in `members`: group i ends where i + 1 begins
    near_list *nearest; // (n, asked): in each group
    uint32_t *lists;
    float *distances;
    char *scratch; // a worker: a left panel, 32 x d floats, 32 x all groups' scores
    size_t bytes;
} assignment;

// The groups with the highest scores, in a small sorted array.
static void choose(const assignment *a, const float *scores, uint32_t *chosen) {
    float best[ASKED];
    size_t n = 0;
    for (size_t i = 0; i < a->g->count; i++) {
        if (n == a->asked && !(scores[i] > best[n - 1])) continue;
        size_t at = n < a->asked ? n++ : n - 1;
        for (; at > 0 && scores[i] > best[at - 1]; at--) {
            best[at] = best[at - 1];
            chosen[at] = chosen[at - 1];
        }
        best[at] = scores[i];
        chosen[at] = (uint32_t)i;
    }
}

static void ask_groups(void *context, size_t task, int worker) {
    const assignment *a = context;
    const kn_groups *g = a->g;
    size_t first = task * KN_CELL, n = kn_min(KN_CELL, a->n - first), ld = kn_cells(g->count) * KN_CELL;
    char *lhs = a->scratch + (size_t)worker * a->bytes;
    float *scores = (float *)(void *)(lhs + g->panel) + KN_CELL * g->d;
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    g->k->pack_lhs(lhs, a->x + first * g->d, g->d, n, g->d);
    for (size_t c = 0; c < ld; c += KN_CELL) {
        g->k->multiply(block, lhs, (const char *)g->asked.data + c / KN_CELL * g->panel, kn_cells(g->d), n,
                       false);
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < KN_CELL; i++)
                scores[r * ld + c + i] = block[r * KN_CELL + i] - g->halves[c + i];
    }
    for (size_t r = 0; r < n; r++) choose(a, scores + r * ld, a->groups + (first + r) * a->asked);
}

// Sorts the vectors by the groups that they ask.
static void find_members(assignment *a) {
    size_t count = a->g->count, n = a->n * a->asked;
    memset(a->ends, 0, (count + 2) * sizeof *a->ends);
    for (size_t i = 0; i < n; i++) a->ends[a->groups[i] + 2]++;
    for (size_t c = 0; c < count; c++) a->ends[c + 2] += a->ends[c + 1];
    for (size_t i = 0; i < n; i++) a->members[a->ends[a->groups[i] + 1]++] = (uint32_t)i;
}

// ---------------------------------------------------------------- measuring against lists

// The best of a panel's lists, if it is better than those of the panels before.
static void take_panel(const kn_groups *g, size_t panel, const float *block, size_t n, const float *squares,
                       near_list *best) {
    const float *bias = g->bias + panel * KN_CELL;
    for (size_t r = 0; r < n; r++) {
        float scores[KN_CELL], max;
        for (size_t i = 0; i < KN_CELL; i++) scores[i] = block[r * KN_CELL + i] + bias[i];
        max = g->k->max(scores, KN_CELL);
        float distance = squares[r] - 2 * max;
        if (!(distance < best[r].distance)) continue;
        size_t i = 0;
        while (i + 1 < KN_CELL && scores[i] != max) i++;
        best[r] = (near_list){distance, g->lists[panel * KN_CELL + i]};
    }
}

static void measure_group(void *context, size_t group, int worker) {
    const assignment *a = context;
    const kn_groups *g = a->g;
    char *lhs = a->scratch + (size_t)worker * a->bytes;
    float *moved = (float *)(void *)(lhs + g->panel), squares[KN_CELL];
    float block[KN_CELL_SIZE] __attribute__((aligned(64)));
    for (size_t m = a->ends[group]; m < a->ends[group + 1]; m += KN_CELL) {
        const uint32_t *members = a->members + m;
        size_t n = kn_min(KN_CELL, a->ends[group + 1] - m);
        near_list best[KN_CELL];
        for (size_t r = 0; r < n; r++) {
            subtract(moved + r * g->d, a->x + members[r] / a->asked * g->d, g->centres + group * g->d, g->d);
            squares[r] = (float)g->k->sum_squares(moved + r * g->d, g->d);
            best[r] = (near_list){INFINITY, UINT32_MAX};
        }
        g->k->pack_lhs(lhs, moved, g->d, n, g->d);
        for (size_t p = g->starts[group]; p < g->starts[group + 1]; p++) {
            g->k->multiply(block, lhs, g->panels + p * g->panel, kn_cells(g->d), n, false);
            take_panel(g, p, block, n, squares, best);
        }
        for (size_t r = 0; r < n; r++) a->nearest[members[r]] = best[r];
    }
}

// The nearest of the groups' best, by their exact distances where they are nearly equal. A vector that is not
// finite is infinitely far from all: the first list takes it.
static void settle(void *context, size_t i, int worker) {
    const assignment *a = context;
    const float *x = a->x + i * a->g->d;
    near_list *near = a->nearest + i * a->asked, best = {INFINITY, 0};
    (void)worker;
    float min = INFINITY;
    for (size_t p = 0; p < a->asked; p++) min = fminf(min, near[p].distance);
    float limit = min + 0.01f * fabsf(min);
    for (size_t p = 0; p < a->asked; p++) {
        if (!(near[p].distance <= limit) || near[p].list == UINT32_MAX) continue;
        float distance = kn_quantizer_measure(a->g->quantizer, x, near[p].list);
        if (distance < best.distance || (distance == best.distance && near[p].list < best.list))
            best = (near_list){distance, near[p].list};
    }
    a->lists[i] = best.list;
    a->distances[i] = best.distance;
}

// ---------------------------------------------------------------- the door

static bool make_room(assignment *a, size_t max) {
    const kn_groups *g = a->g;
    a->bytes = g->panel + KN_CELL * (g->d + kn_cells(g->count) * KN_CELL) * sizeof(float);
    a->bytes = (a->bytes + 63) / 64 * 64;
    a->groups = kn_alloc(max * a->asked, sizeof *a->groups);
    a->members = kn_alloc(max * a->asked, sizeof *a->members);
    a->nearest = kn_alloc(max * a->asked, sizeof *a->nearest);
    a->ends = kn_alloc(g->count + 2, sizeof *a->ends);
    a->scratch = kn_alloc_aligned((size_t)kn_threads(), a->bytes);
    return a->groups && a->members && a->nearest && a->ends && a->scratch;
}

knnlm_status kn_groups_assign(const kn_groups *g, const float *x, size_t n, uint32_t *lists,
                              float *distances) {
    assignment a = {.g = g, .asked = kn_min(ASKED, g->count)};
    bool room = make_room(&a, kn_min(n, BATCH));
    for (size_t done = 0; room && done < n; done += a.n) {
        a.n = kn_min(BATCH, n - done);
        a.x = x + done * g->d;
        a.lists = lists + done;
        a.distances = distances + done;
        kn_parallel(kn_cells(a.n), ask_groups, &a);
        find_members(&a);
        kn_parallel(g->count, measure_group, &a);
        kn_parallel(a.n, settle, &a);
    }
    free(a.groups);
    free(a.members);
    free(a.nearest);
    free(a.ends);
    kn_free_aligned(a.scratch);
    return room ? KNNLM_OK : KNNLM_ENOMEM;
}
