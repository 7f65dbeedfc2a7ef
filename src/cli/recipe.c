// The recipe of an index on the command line, and what came of it.
#include "cli/store.h"

#include <inttypes.h>
#include <stdio.h>

int cli_read_recipe(const cli_command *command, const cli_recipe *args, knnlm_index_options *out) {
    *out = knnlm_index_options_default();
    out->lists = (uint32_t)args->lists;
    out->codes = args->codes;
    out->train = (uint64_t)args->train;
    out->probes = (uint32_t)args->probes;
    out->iterations = (uint32_t)args->iterations;
    if (args->seed) out->seed = (uint64_t)args->seed;
    out->memory = args->memory;
    out->force = args->force;
    out->progress = cli_progress;
    if (knnlm_index_options_check(out) != KNNLM_OK)
        return cli_usage(command, "--%s", knnlm_message()); // which begins with "codes"
    if (!args->paper) return CLI_DONE;
    if (args->lists || args->codes || args->train || args->probes)
        return cli_usage(command, "--paper is a recipe of its own");
    out->lists = 4096;
    out->codes = "pq64";
    out->train = 1000000;
    out->probes = 32;
    return CLI_DONE;
}

json_t *cli_json_index(const knnlm_index_info *i) {
    if (!i->lists) return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o?, s:o?}", "lists", (json_int_t)i->lists,
                     "probes", (json_int_t)i->probes, "listed", (json_int_t)i->listed, "outside",
                     (json_int_t)i->outside, "code_bytes", (json_int_t)i->code_bytes, "code_bits",
                     (json_int_t)i->code_bits, "bytes", (json_int_t)i->bytes, "imbalance",
                     json_real(i->imbalance), "drift", json_real(i->drift));
}

json_t *cli_json_indexed(const knnlm_index_result *r) {
    json_t *object = cli_json_index(&r->index);
    json_object_set_new(object, "objective", json_real(r->objective));
    json_object_set_new(object, "seconds",
                        json_pack("{s:o?, s:o?, s:o?}", "train", json_real(r->train_seconds), "assign",
                                  json_real(r->assign_seconds), "write", json_real(r->write_seconds)));
    return object;
}

void cli_print_index(const knnlm_index_result *r) {
    const knnlm_index_info *i = &r->index;
    char size[32], seconds[32];
    printf("index            %" PRIu32 " lists, %" PRIu64 " entries; %" PRIu32 " lists searched by default\n",
           i->lists, i->listed, i->probes);
    if (i->code_bytes)
        printf("codes            %" PRIu32 " bytes, %" PRIu32 " bits a part\n", i->code_bytes, i->code_bits);
    printf("its size         %sB\n", cli_count((double)i->bytes, size));
    printf("its balance      %.2f times the work of equal lists\n", i->imbalance);
    if (i->drift > 0)
        printf("its drift        %.2f%s\n", i->drift,
               i->drift > 1.2 ? ": what was added lies far from the lists; knnlm index learns anew" : "");
    printf("its time         %s: %.1fs learning, %.1fs assigning, %.1fs writing\n",
           cli_duration(r->seconds, seconds), r->train_seconds, r->assign_seconds, r->write_seconds);
}
