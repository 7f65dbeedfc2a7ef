// Axes of a plot: ticks and labels.
#include "cli/plot_axis.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 7 }; // between ticks on a linear axis, at most

// ---------------------------------------------------------------- what is shown

// The bounds leave room for margins, steps and their logarithms within doubles.
bool cli_scale_usable(const cli_scale *s, double value) {
    return fabs(value) < 1e300 && (!s->log || value > 1e-300);
}

static double scaled(const cli_scale *s, double value) {
    return s->log ? log10(value) : value;
}

// Whether ticks between the two can be told apart, and divisions by their difference are sound.
static bool apart(const cli_scale *s, double low, double high) {
    double min = s->log ? 1e-9 : fmax(1e-290, 1e-9 * fmax(fabs(low), fabs(high)));
    return high - low > min;
}

static void include(cli_scale *s, double value) {
    s->low = fmin(s->low, scaled(s, value));
    s->high = fmax(s->high, scaled(s, value));
}

// Points on the very edge would hide it; a single value stands in the middle.
static void widen(cli_scale *s) {
    double size = fmax(fabs(s->low), fabs(s->high)), margin;
    if (s->low > s->high) { // no points
        s->low = 0;
        s->high = 1;
        return;
    }
    if (apart(s, s->low, s->high))
        margin = 0.04 * (s->high - s->low);
    else if (s->log)
        margin = 0.35; // a little more than a factor of 2
    else
        margin = size > 1e-280 ? 0.1 * size : 1;
    s->low -= margin;
    s->high += margin;
}

static bool fix(cli_scale *s, const cli_axis *wish) {
    if (!cli_scale_usable(s, wish->low) || !cli_scale_usable(s, wish->high)) return false;
    if (!apart(s, scaled(s, wish->low), scaled(s, wish->high))) return false;
    s->low = scaled(s, wish->low);
    s->high = scaled(s, wish->high);
    return true;
}

// ---------------------------------------------------------------- ticks

static void add_tick(cli_scale *s, double value) {
    if (s->count < CLI_TICKS) s->ticks[s->count++] = value;
}

static void tick_steps(cli_scale *s) {
    double low = s->log ? pow(10, s->low) : s->low, high = s->log ? pow(10, s->high) : s->high;
    double raw = (high - low) / STEPS, power = pow(10, floor(log10(raw)));
    s->step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
    double slack = 1e-9, last = floor(high / s->step + slack); // 0.6 is not quite 3 times 0.2
    for (double i = ceil(low / s->step - slack); i <= last; i++) add_tick(s, i * s->step + 0.0); // no -0
}

static void tick_powers(cli_scale *s, double base) {
    double unit = log10(base), first = ceil(s->low / unit - 1e-9), last = floor(s->high / unit + 1e-9);
    double stride = fmax(1, ceil((last - first + 1) / CLI_TICKS));
    for (double e = ceil(first / stride) * stride; e <= last; e += stride) add_tick(s, pow(base, e));
}

static void tick_1_2_5(cli_scale *s) {
    static const double digits[] = {1, 2, 5};
    for (double e = floor(s->low); e <= s->high; e++)
        for (int i = 0; i < 3; i++)
            if (cli_scale_shows(s, digits[i] * pow(10, e))) add_tick(s, digits[i] * pow(10, e));
}

static void tick(cli_scale *s, bool doubling) {
    double decades = s->high - s->low;
    if (!s->log)
        tick_steps(s);
    else if (doubling && decades > log10(2))
        tick_powers(s, 2);
    else if (decades >= 2)
        tick_powers(s, 10);
    else if (decades >= 0.8)
        tick_1_2_5(s);
    else
        tick_steps(s); // a short stretch of a logarithm is nearly straight
}

static bool is_power_of_two(double value) {
    int exponent;
    return frexp(value, &exponent) == 0.5;
}

void cli_scale_find(const cli_plot *p, cli_scale *x, cli_scale *y) {
    size_t count = 0, powers_x = 0, powers_y = 0;
    *x = (cli_scale){.log = p->x.log, .low = INFINITY, .high = -INFINITY};
    *y = (cli_scale){.log = p->y.log, .low = INFINITY, .high = -INFINITY};
    for (size_t j = 0; j < p->count; j++)
        for (size_t i = 0; i < p->curves[j].count; i++) {
            const cli_curve *c = &p->curves[j];
            if (!cli_scale_usable(x, c->x[i]) || !cli_scale_usable(y, c->y[i])) continue;
            include(x, c->x[i]);
            include(y, c->y[i]);
            powers_x += is_power_of_two(c->x[i]);
            powers_y += is_power_of_two(c->y[i]);
            count++;
        }
    if (p->marked && cli_scale_usable(x, p->marked_x)) include(x, p->marked_x);
    if (!fix(x, &p->x)) widen(x);
    if (!fix(y, &p->y)) widen(y);
    tick(x, powers_x > count / 2); // not all: the last of 1, 2, 4, ... is often "as many as there are"
    tick(y, powers_y > count / 2);
}

// ---------------------------------------------------------------- where, and what beside it

bool cli_scale_shows(const cli_scale *s, double value) {
    double slack = 1e-9 * (s->high - s->low);
    return cli_scale_usable(s, value) && scaled(s, value) >= s->low - slack &&
           scaled(s, value) <= s->high + slack;
}

double cli_scale_at(const cli_scale *s, double value) {
    double where = s->from + (s->to - s->from) * (scaled(s, value) - s->low) / (s->high - s->low);
    return fmax(-1e5, fmin(1e5, where)); // far outside is far enough: viewers compute in floats
}

// 500, 5000 and 50K; but 16384, and 10500 among other odd ones.
const char *cli_scale_label(const cli_scale *s, double tick, char buffer[32]) {
    static const char *const units[] = {"", "K", "M", "G", "T"};
    bool round = fmod(tick, 1000) == 0 && fmod(s->step, 1000) == 0;
    double step = s->step;
    int unit = 0;
    if (fabs(tick) >= (round ? 1e4 : 1e5) && fabs(tick) < 1e15)
        for (; fabs(tick) >= 1000; unit++) {
            tick /= 1000;
            step /= 1000;
        }
    if (step >= 1e-6 && fabs(tick) < 1e15)
        snprintf(buffer, 32, "%.*f%s", (int)fmax(0, ceil(-log10(step) - 1e-9)), tick, units[unit]);
    else // 12 digits: apart() holds steps above a billionth of the ticks
        snprintf(buffer, 32, "%.*g%s", step > 0 ? 12 : 6, tick, units[unit]);
    return buffer;
}
