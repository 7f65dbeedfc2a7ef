// knnlm verify --recall: what searches find, and what they cost.
#include "cli/recall.h"

#include "cli/input.h"
#include "cli/plot.h"
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>

static const char *label(const knnlm_recall *r, char buffer[32]) {
    if (r->probes)
        snprintf(buffer, 32, "%" PRIu32, r->probes);
    else
        snprintf(buffer, 32, "all");
    return buffer;
}

static void print_table(const knnlm_recall *rows, size_t count, size_t k) {
    char name[32], rate[32];
    printf("probes      recall@1   @10       @100      @%-8zu queries/s\n", k);
    for (size_t i = 0; i < count; i++) {
        printf("%-10s ", label(&rows[i], name));
        for (int j = 0; j < KNNLM_RECALL_DEPTHS; j++) printf(" %-9.4f", rows[i].recall[j]);
        printf(" %s\n", cli_count(rows[i].queries_per_second, rate));
    }
}

static json_t *table_json(const knnlm_recall *rows, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        cli_json_append(list,
                        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "probes", (json_int_t)rows[i].probes,
                                  "recall_1", rows[i].recall[0], "recall_10", rows[i].recall[1], "recall_100",
                                  rows[i].recall[2], "recall_k", rows[i].recall[3], "queries_per_second",
                                  rows[i].queries_per_second));
    return list;
}

static knnlm_status plot(const char *path, const knnlm_recall *rows, size_t count, size_t k) {
    double rates[KNNLM_RECALL_MAX], recalls[KNNLM_RECALL_DEPTHS][KNNLM_RECALL_MAX];
    char probes[KNNLM_RECALL_MAX][32 + sizeof " probes"], deepest[32];
    const char *labels[KNNLM_RECALL_MAX];
    const char *const names[KNNLM_RECALL_DEPTHS] = {"recall@1", "recall@10", "recall@100", deepest};
    cli_curve curves[KNNLM_RECALL_DEPTHS];
    snprintf(deepest, sizeof deepest, "recall@%zu", k);
    for (size_t i = 0; i < count; i++) {
        char number[32];
        snprintf(probes[i], sizeof probes[i], "%s probes", label(&rows[i], number));
        labels[i] = probes[i];
        rates[i] = rows[i].queries_per_second;
        for (int j = 0; j < KNNLM_RECALL_DEPTHS; j++) recalls[j][i] = rows[i].recall[j];
    }
    for (int j = 0; j < KNNLM_RECALL_DEPTHS; j++)
        curves[j] = (cli_curve){names[j], rates, recalls[j], labels, count, false};
    return cli_plot_write(path, &(cli_plot){.x = {.label = "queries per second", .log = true},
                                            .y = {.label = "recall", .low = 0, .high = 1},
                                            .curves = curves,
                                            .count = KNNLM_RECALL_DEPTHS});
}

knnlm_status cli_recall(const knnlm_store *store, const cli_recall_wish *wish, json_t **json) {
    knnlm_recall rows[KNNLM_RECALL_MAX];
    knnlm_recall_options o = knnlm_recall_options_default();
    size_t count;
    o.queries = (size_t)wish->queries;
    o.k = (size_t)wish->k;
    o.memory = wish->memory;
    o.progress = cli_progress;
    KN_TRY(knnlm_store_recall(store, &o, rows, &count));
    cli_progress_clear();
    if (wish->plot) KN_TRY(plot(wish->plot, rows, count, o.k));
    if (wish->plot && cli_is_standard(wish->plot)) cli_results_to_stderr();
    if (json)
        *json = table_json(rows, count);
    else
        print_table(rows, count, o.k);
    return KNNLM_OK;
}
