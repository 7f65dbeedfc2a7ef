// Charts: points stand where their axes say, whatever the numbers; the SVG is XML, whatever the names.
#include "expect.h"

#include "base/file.h"
#include "base/utf8.h"
#include "cli/plot.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "test_plot.XXXXXX";

static int enter_directory(void **state) {
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int leave_directory(void **state) {
    (void)state;
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1; // not empty: a test left a file behind
}

// The SVG of a plot, which the caller frees.
static char *drawing(const cli_plot *plot) {
    char *text;
    size_t size;
    OK(cli_plot_write("plot.svg", plot));
    OK(kn_file_read("plot.svg", &text, &size));
    assert_int_equal(unlink("plot.svg"), 0);
    assert_int_equal(kn_utf8_valid(text, size), size);
    assert_int_equal(strlen(text), size);
    return text;
}

static size_t occurrences(const char *text, const char *what) {
    size_t count = 0;
    while ((text = strstr(text, what))) {
        count++;
        text += strlen(what);
    }
    return count;
}

// The number after the last `name` before `place`.
static double attribute(const char *text, const char *place, const char *name) {
    const char *last = NULL;
    for (const char *p = strstr(text, name); p && p < place; p = strstr(p + 1, name)) last = p;
    assert_non_null(last);
    return atof(last + strlen(name));
}

static const char *find(const char *text, const char *what) {
    const char *place = strstr(text, what);
    if (!place) fail_msg("\"%s\" is not in %s", what, text);
    return place;
}

// ---- where things stand

static void powers_of_two_get_ticks_at_them(void **state) {
    (void)state;
    double k[11], ppl[11];
    for (int i = 0; i < 11; i++) {
        k[i] = 1 << i;
        ppl[i] = 95 - 1.5 * i;
    }
    cli_curve curve = {"valid", k, ppl, NULL, 11, false};
    char *svg = drawing(&(cli_plot){.x = {.label = "k", .log = true},
                                    .y = {.label = "perplexity"},
                                    .curves = &curve,
                                    .count = 1,
                                    .marked = "chosen",
                                    .marked_x = 64});
    for (int i = 0; i < 11; i++) {
        char label[64], hover[64];
        snprintf(label, sizeof label, "\"middle\">%d</text>", 1 << i);
        snprintf(hover, sizeof hover, "valid\nk: %d\nperplexity: %g</title>", 1 << i, ppl[i]);
        double tick = attribute(svg, find(svg, label), "<text x=\"");
        assert_float_equal(attribute(svg, find(svg, hover), "cx=\""), tick, 0.01);
        if (k[i] == 64)
            assert_float_equal(attribute(svg, find(svg, ">chosen</text>"), "<text x=\""), tick, 0.01);
    }
    free(svg);
}

// Ticks of 1, 2 and 5 times a power of ten, among which points stand in proportion.
static void steps_are_round(void **state) {
    static const struct {
        double low, high;
        const char *first, *second, *last; // labels
    } cases[] = {
        {0, 1, "0.0", "0.2", "1.0"},
        {80, 95, "80", "85", "95"},
        {-3, 3, "-3", "-2", "3"},
        {0, 70000, "0", "10K", "70K"},
        {1e-9, 4e-9, "1e-09", "1.5e-09", "4e-09"},
        {1000, 1000.001, "1000.0000", "1000.0002", "1000.0010"},
        {2e6, 3e6, "2.0M", "2.2M", "3.0M"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double low = cases[i].low, high = cases[i].high;
        double x[] = {0, 1, 2}, y[] = {low, high, (low + high) / 2};
        cli_curve curve = {"c", x, y, NULL, 3, false};
        char *svg = drawing(&(cli_plot){.y = {.low = low, .high = high}, .curves = &curve, .count = 1}),
             label[64];
        snprintf(label, sizeof label, "\"end\">%s</text>", cases[i].first);
        double bottom = attribute(svg, find(svg, label), " y=\"") - 4;
        snprintf(label, sizeof label, "\"end\">%s</text>", cases[i].last);
        double top = attribute(svg, find(svg, label), " y=\"") - 4;
        snprintf(label, sizeof label, "\"end\">%s</text>", cases[i].second);
        double second = attribute(svg, find(svg, label), " y=\"") - 4;
        assert_true(top < second && second < bottom);
        assert_float_equal(attribute(svg, find(svg, "\n0\n"), "cy=\""), bottom, 0.11);
        assert_float_equal(attribute(svg, find(svg, "\n1\n"), "cy=\""), top, 0.11);
        assert_float_equal(attribute(svg, find(svg, "\n2\n"), "cy=\""), (bottom + top) / 2, 0.11);
        free(svg);
    }
}

static void limits_hide_points_beyond_them(void **state) {
    (void)state;
    double x[] = {1, 2, 3, 4}, y[] = {0, 0.5, 1, 7};
    cli_curve curve = {NULL, x, y, (const char *[]){"a", "b", "c", "d"}, 4, false};
    cli_plot plot = {.y = {.low = 0, .high = 1}, .curves = &curve, .count = 1};
    char *svg = drawing(&plot);
    assert_int_equal(occurrences(svg, "<circle "), 3);
    find(svg, "<title>c\n3\n1</title>");
    free(svg);
    plot.y = (cli_axis){.low = NAN, .high = NAN};
    svg = drawing(&plot);
    assert_int_equal(occurrences(svg, "<circle "), 4);
    free(svg);
}

static void lines_have_gaps(void **state) {
    (void)state;
    double x[] = {1, 2, 3, 4, 5, -6}, y[] = {1, 2, NAN, 4, INFINITY, 1};
    cli_curve curve = {NULL, x, y, NULL, 6, true};
    char *svg = drawing(&(cli_plot){.x = {.log = true}, .curves = &curve, .count = 1});
    const char *line = find(svg, "<path stroke=\"#0072b2\" stroke-dasharray=");
    assert_int_equal(occurrences(line, "h0"), 2); // 1 and 2 joined, 4 alone
    assert_int_equal(occurrences(line, "L"), 1);
    assert_int_equal(occurrences(svg, "<circle "), 3);
    free(svg);
}

// ---- numbers and names of all kinds

// By Python's parser, where there is one.
static void assert_xml(const char *svg) {
    if (access("/usr/bin/python3", X_OK) != 0) return;
    FILE *python = popen("/usr/bin/python3 -c 'import sys, xml.dom.minidom as xml\n"
                         "xml.parse(sys.stdin.buffer)'",
                         "w");
    assert_non_null(python);
    assert_int_equal(fwrite(svg, 1, strlen(svg), python), strlen(svg));
    assert_int_equal(pclose(python), 0);
}

static void no_numbers_break_it(void **state) {
    static const double values[] = {-DBL_MAX, -1e299, 0,     5e-324,  1e-299, 1,        3,
                                    1e15,     1e299,  1e300, DBL_MAX, NAN,    INFINITY, 1e15 + 0.125};
    enum { N = sizeof values / sizeof *values };
    (void)state;
    for (int n = 0; n < N * N * 4; n++) {
        int i = n / 4 % N, j = n / 4 / N;
        double x[] = {values[i], values[j], values[j]}, y[] = {values[j], values[i], values[(i + j) % N]};
        cli_curve curve = {NULL, x, y, NULL, 3, false};
        char *svg = drawing(&(cli_plot){.x = {NULL, n & 1, values[i * 7 % N], values[j]},
                                        .y = {NULL, n & 2, 0, 0},
                                        .curves = &curve,
                                        .count = 1,
                                        .marked = "m",
                                        .marked_x = values[(i + 5) % N]});
        assert_null(strstr(svg, "nan"));
        assert_null(strstr(svg, "inf"));
        find(svg, "</svg>\n");
        free(svg);
    }
}

static void few_points_are_enough(void **state) {
    (void)state;
    double x[] = {8, 16, 32}, same[] = {80, 80, 80}, none[] = {NAN, NAN, NAN};
    cli_curve curve = {"c", x, same, NULL, 3, false};
    cli_plot plot = {.x = {.log = true}, .curves = &curve, .count = 1};
    for (int count = 3; count >= 0; count--) {
        curve.count = (size_t)count;
        char *svg = drawing(&plot);
        assert_int_equal(occurrences(svg, "<title>"), count);
        assert_xml(svg);
        free(svg);
    }
    curve = (cli_curve){"c", x, none, NULL, 3, false};
    char *svg = drawing(&plot);
    assert_int_equal(occurrences(svg, "<title>"), 0);
    free(svg);
    svg = drawing(&(cli_plot){0});
    assert_xml(svg);
    free(svg);
}

static void any_bytes_are_names(void **state) {
    static const char *const names[] = {
        "a&b <c> \"d\" 'e' ]]>", "\xff\xfe caf\xc3", "\xef\xbf\xbe\xed\xa0\x80\x01\x1b[0m\x7f\n",
        "\xe6\x96\x87", "/a/long/path/of/folders/that/goes/on/and/on/to/the/\xe6\x96\x87\xe4\xbb\xb6.store"};
    enum { N = sizeof names / sizeof *names };
    (void)state;
    double one = 1;
    cli_curve curves[N];
    for (int j = 0; j < N; j++) curves[j] = (cli_curve){names[j], &one, &one, &names[j], 1, j % 2};
    for (int i = 0; i < N; i++) {
        char *svg = drawing(&(cli_plot){.title = names[i],
                                        .x = {.label = names[i]},
                                        .y = {.label = names[i]},
                                        .curves = curves,
                                        .count = N,
                                        .marked = names[i],
                                        .marked_x = 1});
        assert_xml(svg);
        assert_null(strstr(svg, "<c>"));
        find(svg, ">a&#38;b &#60;c&#62; &#34;d&#34; &#39;e&#39; ]]&#62;</text>");
        find(svg, ">\xef\xbf\xbd\xef\xbf\xbd caf\xef\xbf\xbd</text>");
        find(svg, ">\xe2\x80\xa6"); // the long one, cut
        find(svg, "/the/\xe6\x96\x87\xe4\xbb\xb6.store</text>");
        free(svg);
    }
}

static void locales_change_nothing(void **state) {
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR", "pt_BR.UTF-8"};
    (void)state;
    double x[] = {0.5, 1.5}, y[] = {0.25, 0.75};
    cli_curve curve = {"c", x, y, NULL, 2, false};
    cli_plot plot = {.curves = &curve, .count = 1};
    char *plain = drawing(&plot);
    size_t i = 0;
    while (i < 5 && !setlocale(LC_ALL, locales[i])) i++;
    char *svg = drawing(&plot), number[16];
    snprintf(number, sizeof number, "%.1f", 0.5); // what it was is in force again
    setlocale(LC_ALL, "C");
    assert_string_equal(svg, plain);
    free(svg);
    free(plain);
    if (i == 5) skip(); // none of them is here
    assert_string_equal(number, "0,5");
}

static void failures_are_told(void **state) {
    (void)state;
    FAILS(KNNLM_EIO, "none/plot.svg", cli_plot_write("none/plot.svg", &(cli_plot){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_get_ticks_at_them),
        cmocka_unit_test(steps_are_round),
        cmocka_unit_test(limits_hide_points_beyond_them),
        cmocka_unit_test(lines_have_gaps),
        cmocka_unit_test(no_numbers_break_it),
        cmocka_unit_test(few_points_are_enough),
        cmocka_unit_test(any_bytes_are_names),
        cmocka_unit_test(locales_change_nothing),
        cmocka_unit_test(failures_are_told),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
