// What is counted, as Prometheus reads it.
#include "serve/metrics.h"

#include <inttypes.h>

static const unsigned statuses[KN_METRIC_STATUSES] = {200, 201, 202, 204, 400, 401, 403, 404, 405,
                                                      408, 409, 413, 415, 429, 500, 501, 503, 504};
static const double bounds[KN_METRIC_BUCKETS] = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60};

void kn_metrics_request(kn_metrics *m, size_t endpoint, unsigned status, double seconds) {
    size_t s = 0, b = 0;
    while (s + 1 < KN_METRIC_STATUSES && statuses[s] != status) s++;
    while (b < KN_METRIC_BUCKETS && seconds > bounds[b]) b++;
    atomic_fetch_add(&m->requests[endpoint][s], 1);
    atomic_fetch_add(&m->seconds[endpoint][b], 1);
    atomic_fetch_add(&m->microseconds[endpoint], (uint_fast64_t)(seconds * 1e6));
}

static void print_histogram(const kn_metrics *m, size_t e, const char *name, FILE *out) {
    uint64_t count = 0;
    for (size_t b = 0; b < KN_METRIC_BUCKETS; b++) {
        count += m->seconds[e][b];
        fprintf(out, "knnlm_request_seconds_bucket{endpoint=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, bounds[b],
                count);
    }
    count += m->seconds[e][KN_METRIC_BUCKETS];
    fprintf(out, "knnlm_request_seconds_bucket{endpoint=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, count);
    fprintf(out, "knnlm_request_seconds_sum{endpoint=\"%s\"} %g\n", name, (double)m->microseconds[e] / 1e6);
    fprintf(out, "knnlm_request_seconds_count{endpoint=\"%s\"} %" PRIu64 "\n", name, count);
}

static void print_counter(FILE *out, const char *name, const char *help, uint64_t value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s counter\n%s %" PRIu64 "\n", name, help, name, name, value);
}

void kn_metrics_print(const kn_metrics *m, const char *const *labels, size_t count, FILE *out) {
    fprintf(out, "# HELP knnlm_requests_total Requests answered.\n# TYPE knnlm_requests_total counter\n");
    for (size_t e = 0; e < count; e++)
        for (size_t s = 0; s < KN_METRIC_STATUSES; s++)
            if (m->requests[e][s])
                fprintf(out, "knnlm_requests_total{endpoint=\"%s\",status=\"%u\"} %" PRIu64 "\n", labels[e],
                        statuses[s], (uint64_t)m->requests[e][s]);
    fprintf(out, "# HELP knnlm_request_seconds Time from the request to the end of its answer.\n"
                 "# TYPE knnlm_request_seconds histogram\n");
    for (size_t e = 0; e < count; e++)
        if (m->microseconds[e]) print_histogram(m, e, labels[e], out);
    print_counter(out, "knnlm_tokens_scored_total", "Tokens of texts that were scored.", m->scored);
    print_counter(out, "knnlm_tokens_generated_total", "Tokens generated.", m->generated);
    print_counter(out, "knnlm_prompt_tokens_total", "Tokens of prompts that were continued.",
                  m->prompt_tokens);
    print_counter(out, "knnlm_tokens_embedded_total", "Tokens of texts that became vectors.", m->embedded);
    print_counter(out, "knnlm_score_batches_total", "Batches in which texts were scored.", m->batches);
    print_counter(out, "knnlm_score_texts_total", "Texts in those batches.", m->batched);
    print_counter(out, "knnlm_generate_steps_total", "Steps of all sequences together.", m->steps);
    print_counter(out, "knnlm_generate_sequence_steps_total", "Sequences in those steps.", m->stepped);
    print_counter(out, "knnlm_clients_gone_total", "Clients that left before their answer.", m->gone);
}
