// What is counted, for Prometheus. Any thread. Not a door: only this room includes it.
#ifndef KN_SERVE_METRICS_H
#define KN_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum { KN_METRIC_ENDPOINTS = 32, KN_METRIC_STATUSES = 20, KN_METRIC_BUCKETS = 12 };

typedef struct kn_metrics {
    atomic_uint_fast64_t requests[KN_METRIC_ENDPOINTS][KN_METRIC_STATUSES];
    atomic_uint_fast64_t seconds[KN_METRIC_ENDPOINTS][KN_METRIC_BUCKETS + 1]; // histogram
    atomic_uint_fast64_t microseconds[KN_METRIC_ENDPOINTS];                   // in sum
    atomic_uint_fast64_t scored, generated, prompt_tokens, embedded;
    atomic_uint_fast64_t batches, batched; // batches of texts, and texts in them
    atomic_uint_fast64_t steps, stepped;   // steps of sequences, and sequences in them
    atomic_uint_fast64_t connections;      // open now
    atomic_uint_fast64_t gone;             // clients that left before their answer
} kn_metrics;

void kn_metrics_request(kn_metrics *m, size_t endpoint, unsigned status, double seconds);
// `labels` of the endpoints, in the order of their numbers. Appends to the stream.
void kn_metrics_print(const kn_metrics *m, const char *const *labels, size_t count, FILE *out);

#endif
