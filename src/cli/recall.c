// knnlm verify --recall: what searches find, and what they cost.
#include "cli/recall.h"

#include "base/file.h"
#include "cli/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *label(const kn_recall *r, char buffer[32]) {
    if (r->probes)
        snprintf(buffer, 32, "%" PRIu32, r->probes);
    else
        snprintf(buffer, 32, "all");
    return buffer;
}

static void print_table(const kn_recall *rows, size_t count, size_t k) {
    char name[32], rate[32];
    printf("probes      recall@1   @10       @100      @%-8zu queries/s\n", k);
    for (size_t i = 0; i < count; i++) {
        printf("%-10s ", label(&rows[i], name));
        for (int j = 0; j < KN_RECALL_DEPTHS; j++) printf(" %-9.4f", rows[i].recall[j]);
        printf(" %s\n", cli_count(rows[i].queries_per_second, rate));
    }
}

static json_t *table_json(const kn_recall *rows, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "probes",
                                              (json_int_t)rows[i].probes, "recall_1", rows[i].recall[0],
                                              "recall_10", rows[i].recall[1], "recall_100", rows[i].recall[2],
                                              "recall_k", rows[i].recall[3], "queries_per_second",
                                              rows[i].queries_per_second));
    return list;
}

// ---------------------------------------------------------------- the plot

enum { WIDTH = 720, HEIGHT = 440, LEFT = 60, RIGHT = 150, TOP = 30, BOTTOM = 60 };

typedef struct canvas {
    kn_writer *w;
    double low, high; // logarithms of queries/s
} canvas;

__attribute__((format(printf, 2, 3))) static void draw(canvas *c, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    kn_writer_put(c->w, line, (size_t)n); // failures are told by the commit
}

static double at_x(const canvas *c, double rate) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(rate) - c->low) / (c->high - c->low);
}

static double at_y(double recall) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * recall;
}

static void draw_axes(canvas *c) {
    draw(c,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
         "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
         WIDTH, HEIGHT);
    for (int i = 0; i <= 10; i += 2)
        draw(c,
             "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
             "text-anchor=\"end\">%.1f</text>\n",
             LEFT, WIDTH - RIGHT, at_y(i / 10.0), at_y(i / 10.0), LEFT - 6, at_y(i / 10.0) + 4, i / 10.0);
    for (double e = ceil(c->low); e <= c->high; e++) {
        char rate[32];
        double x = at_x(c, pow(10, e));
        draw(c,
             "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" "
             "text-anchor=\"middle\">%s</text>\n",
             x, x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, cli_count(pow(10, e), rate));
    }
    draw(c, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">queries a second</text>\n",
         LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 16);
    draw(c, "<text x=\"16\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 16 %d)\">recall</text>\n",
         HEIGHT / 2, HEIGHT / 2);
}

static void draw_curve(canvas *c, const kn_recall *rows, size_t count, int depth, const char *name) {
    static const char *const colours[KN_RECALL_DEPTHS] = {"#1b6ca8", "#2a9d5c", "#d98b1f", "#b5332e"};
    char probes[32];
    draw(c, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[depth]);
    for (size_t i = 0; i < count; i++)
        draw(c, "%.1f,%.1f ", at_x(c, rows[i].queries_per_second), at_y(rows[i].recall[depth]));
    draw(c, "\"/>\n");
    for (size_t i = 0; i < count; i++)
        draw(c,
             "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s probes: %.4f</title></circle>\n",
             at_x(c, rows[i].queries_per_second), at_y(rows[i].recall[depth]), colours[depth],
             label(&rows[i], probes), rows[i].recall[depth]);
    draw(c, "<text x=\"%d\" y=\"%d\" fill=\"%s\">recall@%s</text>\n", WIDTH - RIGHT + 16,
         TOP + 20 + 20 * depth, colours[depth], name);
}

static knnlm_status plot(const char *path, const kn_recall *rows, size_t count, size_t k) {
    char last[32];
    snprintf(last, sizeof last, "%zu", k);
    const char *const names[KN_RECALL_DEPTHS] = {"1", "10", "100", last};
    canvas c = {.low = INFINITY, .high = -INFINITY};
    for (size_t i = 0; i < count; i++) {
        c.low = fmin(c.low, log10(rows[i].queries_per_second) - 0.1);
        c.high = fmax(c.high, log10(rows[i].queries_per_second) + 0.1);
    }
    KN_TRY(kn_writer_open(path, &c.w));
    draw_axes(&c);
    for (int j = 0; j < KN_RECALL_DEPTHS; j++) draw_curve(&c, rows, count, j, names[j]);
    draw(&c, "</svg>\n");
    return kn_writer_commit(c.w);
}

knnlm_status cli_recall(const kn_store *store, const cli_recall_wish *wish, json_t **json) {
    kn_recall rows[KN_RECALL_MOST];
    size_t count;
    kn_recall_options o = {.queries = (size_t)wish->queries,
                           .k = (size_t)wish->k,
                           .seed = 1,
                           .memory = wish->memory,
                           .progress = &cli_progress};
    KN_TRY(kn_index_recall(store, &o, rows, &count));
    cli_progress_clear();
    if (json)
        *json = table_json(rows, count);
    else
        print_table(rows, count, o.k);
    return wish->plot ? plot(wish->plot, rows, count, o.k) : KNNLM_OK;
}
