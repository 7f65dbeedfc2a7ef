// Draws a curve as SVG.
#include "cli/plot.h"

#include "base/file.h"
#include "base/utf8.h"
#include "cli/plot_axis.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 450, // of the frame in which curves are drawn; the picture is larger by what stands around it
    HEIGHT = 350,
    LETTER = 7, // width of a letter, about: fonts, hence widths, are up to who shows an SVG
    ROW = 20,   // of the legend
    NAME = 40,  // letters of a name at most
    DENSE = 40, // points of a curve beyond which they are not drawn each
};

typedef struct chart {
    const cli_plot *plot;
    kn_file_writer *w;
    cli_scale x, y;
    double width, height; // of the picture
} chart;

static bool drawn(const chart *c, const cli_curve *curve, size_t i) {
    return cli_scale_usable(&c->x, curve->x[i]) && cli_scale_usable(&c->y, curve->y[i]);
}

// ---------------------------------------------------------------- text

__attribute__((format(printf, 2, 3))) static void draw(chart *c, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0) kn_file_writer_put(c->w, line, kn_min((size_t)n, sizeof line - 1)); // failures: see the commit
}

enum { UNKNOWN = 0xFFFD };

// The character at `text`, UNKNOWN for what XML 1.0 cannot say; returns its bytes.
static size_t next(const char *text, uint32_t *codepoint) {
    size_t n = kn_utf8_decode(text, strnlen(text, 4), codepoint);
    if (!n || *codepoint < 0x20 || *codepoint == 0x7F || *codepoint == 0xFFFE || *codepoint == 0xFFFF)
        *codepoint = UNKNOWN;
    return n ? n : 1;
}

static void draw_text(chart *c, const char *text) {
    uint32_t codepoint;
    char bytes[4];
    while (*text) {
        text += next(text, &codepoint);
        if (codepoint < 0x80 && strchr("&<>\"'", (int)codepoint))
            draw(c, "&#%d;", (int)codepoint);
        else
            kn_file_writer_put(c->w, bytes, kn_utf8_encode(codepoint, bytes));
    }
}

// In letters: Chinese and its neighbours count as two.
static size_t letters(uint32_t codepoint) {
    return codepoint >= 0x2E80 ? 2 : 1;
}

static size_t text_width(const char *text) {
    size_t width = 0;
    for (uint32_t codepoint; *text; width += letters(codepoint)) text += next(text, &codepoint);
    return width;
}

// What does not fit is cut from the front: files of one folder differ at the end of their names.
static void draw_end(chart *c, const char *text, size_t max) {
    uint32_t codepoint;
    size_t width = text_width(text);
    if (width > max) draw(c, "\u2026");
    for (; width > max; width -= letters(codepoint)) text += next(text, &codepoint);
    draw_text(c, text);
}

// ---------------------------------------------------------------- the frame

// Around the frame stand the title and the mark's text, the ticks and labels, and the legend.
static void lay_out(chart *c) {
    const cli_plot *p = c->plot;
    size_t tick = 0, name = 0;
    char text[32];
    for (size_t i = 0; i < c->y.count; i++)
        tick = kn_max(tick, text_width(cli_scale_label(&c->y, c->y.ticks[i], text)));
    for (size_t j = 0; j < p->count; j++)
        if (p->curves[j].name) name = kn_max(name, kn_min(text_width(p->curves[j].name), NAME) + 1);
    c->x.from = (p->y.label ? 36 : 14) + LETTER * (double)tick;
    c->x.to = c->x.from + WIDTH;
    c->y.to = 16 + (p->title ? 24 : 0) + (p->marked ? 18 : 0);
    c->y.from = c->y.to + fmax(HEIGHT, ROW * (double)p->count);
    c->width = c->x.to + (name ? 52 + LETTER * (double)name : 24);
    c->height = c->y.from + (p->x.label ? 54 : 30);
}

static void draw_ticks(chart *c) {
    const cli_scale *x = &c->x, *y = &c->y;
    char text[32];
    for (size_t i = 0; i < x->count; i++) {
        double where = cli_scale_at(x, x->ticks[i]);
        draw(c, "<path d=\"M%.1f,%.1fV%.1f\" stroke=\"#ddd\"/>", where, y->from, y->to);
        draw(c, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", where, y->from + 18,
             cli_scale_label(x, x->ticks[i], text));
    }
    for (size_t i = 0; i < y->count; i++) {
        double where = cli_scale_at(y, y->ticks[i]);
        draw(c, "<path d=\"M%.1f,%.1fH%.1f\" stroke=\"#ddd\"/>", x->from, where, x->to);
        draw(c, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", x->from - 6, where + 4,
             cli_scale_label(y, y->ticks[i], text));
    }
    draw(c, "<path d=\"M%.1f,%.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#888\"/>\n", x->from, y->to, y->from,
         x->to);
}

static void draw_labels(chart *c) {
    const cli_plot *p = c->plot;
    double middle_x = (c->x.from + c->x.to) / 2, middle_y = (c->y.from + c->y.to) / 2;
    if (p->title) {
        draw(c, "<text x=\"%.1f\" y=\"24\" font-size=\"15\">", c->x.from);
        draw_end(c, p->title, (size_t)((c->width - c->x.from) / (LETTER + 2)));
        draw(c, "</text>\n");
    }
    if (p->x.label) {
        draw(c, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", middle_x, c->height - 14);
        draw_text(c, p->x.label);
        draw(c, "</text>\n");
    }
    if (p->y.label) {
        draw(c, "<text x=\"0\" y=\"0\" text-anchor=\"middle\" transform=\"translate(18 %.1f) rotate(-90)\">",
             middle_y);
        draw_text(c, p->y.label);
        draw(c, "</text>\n");
    }
}

static void draw_mark(chart *c) {
    if (!c->plot->marked || !cli_scale_shows(&c->x, c->plot->marked_x)) return;
    double where = cli_scale_at(&c->x, c->plot->marked_x), part = (where - c->x.from) / (c->x.to - c->x.from);
    const char *anchor = part < 0.3 ? "start" : part > 0.7 ? "end" : "middle"; // stays in the picture
    draw(c, "<path d=\"M%.1f,%.1fV%.1f\" stroke=\"#555\" stroke-dasharray=\"2 3\"/>", where, c->y.from,
         c->y.to);
    draw(c, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", where, c->y.to - 6, anchor);
    draw_end(c, c->plot->marked, NAME);
    draw(c, "</text>\n");
}

// ---------------------------------------------------------------- curves

// Okabe and Ito's, which those who see few colours tell apart too; their yellow is too pale for lines on
// white, and brown stands in for it.
static const char *colour(size_t curve) {
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                          "#e69f00", "#000000", "#56b4e9", "#7f4f24"};
    return colours[curve % (sizeof colours / sizeof *colours)];
}

static void draw_line(chart *c, size_t j) {
    const cli_curve *curve = &c->plot->curves[j];
    bool joined = false;
    draw(c, "<path stroke=\"%s\"%s d=\"", colour(j), curve->dashed ? " stroke-dasharray=\"6 5\"" : "");
    for (size_t i = 0; i < curve->count; i++) {
        bool here = drawn(c, curve, i);
        if (here) // h0: a point between two gaps is a dot
            draw(c, "%s%.1f,%.1f%s", joined ? "L" : "M", cli_scale_at(&c->x, curve->x[i]),
                 cli_scale_at(&c->y, curve->y[i]), joined ? "" : "h0");
        joined = here;
    }
    draw(c, "\"/>\n");
}

// Lines may lead out of the frame, where limits were given; nothing is seen of them there.
static void draw_lines(chart *c) {
    draw(c,
         "<clipPath id=\"frame\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n",
         c->x.from - 1, c->y.to - 1, c->x.to - c->x.from + 2, c->y.from - c->y.to + 2);
    draw(c, "<g fill=\"none\" stroke-width=\"2\" stroke-linecap=\"round\" stroke-linejoin=\"round\" "
            "pointer-events=\"none\" clip-path=\"url(#frame)\">\n");
    for (size_t j = 0; j < c->plot->count; j++) draw_line(c, j);
    draw(c, "</g>\n");
}

static void draw_value(chart *c, const char *label, double value) {
    draw(c, "\n");
    if (label) draw_text(c, label);
    draw(c, "%s%.6g", label ? ": " : "", value);
}

// What is told when the pointer rests on a point.
static void draw_hover(chart *c, const cli_curve *curve, size_t i) {
    const char *label = curve->labels ? curve->labels[i] : NULL;
    draw(c, "<title>");
    if (curve->name) draw_text(c, curve->name);
    if (curve->name && label) draw(c, ", ");
    if (label) draw_text(c, label);
    draw_value(c, c->plot->x.label, curve->x[i]);
    draw_value(c, c->plot->y.label, curve->y[i]);
    draw(c, "</title>");
}

static void draw_points(chart *c, size_t j) {
    const cli_curve *curve = &c->plot->curves[j];
    bool dense = curve->count > DENSE; // seen only under the pointer
    draw(c, "<g fill=\"%s\"%s>\n", colour(j), dense ? " fill-opacity=\"0\"" : "");
    for (size_t i = 0; i < curve->count; i++) {
        if (!cli_scale_shows(&c->x, curve->x[i]) || !cli_scale_shows(&c->y, curve->y[i])) continue;
        draw(c, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">", cli_scale_at(&c->x, curve->x[i]),
             cli_scale_at(&c->y, curve->y[i]));
        draw_hover(c, curve, i);
        draw(c, "</circle>\n");
    }
    draw(c, "</g>\n");
}

static void draw_legend(chart *c) {
    double x = c->x.to + 16;
    for (size_t j = 0; j < c->plot->count; j++) {
        const cli_curve *curve = &c->plot->curves[j];
        double y = c->y.to + ROW * ((double)j + 0.5);
        if (!curve->name) continue;
        draw(c, "<path d=\"M%.1f,%.1fh22\" stroke=\"%s\" stroke-width=\"2\"%s/>", x, y, colour(j),
             curve->dashed ? " stroke-dasharray=\"6 5\"" : "");
        if (curve->count <= DENSE)
            draw(c, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>", x + 11, y, colour(j));
        draw(c, "<text x=\"%.1f\" y=\"%.1f\">", x + 28, y + 4);
        draw_end(c, curve->name, NAME);
        draw(c, "</text>\n");
    }
}

static void draw_chart(chart *c) {
    draw(c,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
         "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
         c->width, c->height, c->width, c->height);
    draw(c, "<style>circle:hover { fill-opacity: 1 }</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
    draw_ticks(c);
    draw_labels(c);
    draw_mark(c);
    draw_lines(c);
    for (size_t j = 0; j < c->plot->count; j++) draw_points(c, j);
    draw_legend(c);
    draw(c, "</svg>\n");
}

knnlm_status cli_plot_write(const char *path, const cli_plot *plot) {
    chart c = {.plot = plot};
    cli_scale_find(plot, &c.x, &c.y);
    KN_TRY(kn_file_writer_open(path, &c.w));
    // printf writes commas for points in some locales. No locale (0) changes nothing: out of memory.
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), before = uselocale(plain);
    lay_out(&c);
    draw_chart(&c);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return kn_file_writer_commit(c.w);
}
