// The axes of a chart: what they show, where it stands, and what is written beside them.
#ifndef KN_CLI_PLOT_AXIS_H
#define KN_CLI_PLOT_AXIS_H

#include "cli/plot.h"

enum { CLI_TICKS = 12 }; // at most

typedef struct cli_scale {
    bool log;
    double low, high; // of what is shown; their logarithms (base 10) when `log`
    double from, to;  // where those stand in the picture: set by who lays it out
    double ticks[CLI_TICKS];
    size_t count;
    double step; // between ticks; 0: they are not evenly spaced
} cli_scale;

// What the axes of the plot show, and their ticks.
void cli_scale_find(const cli_plot *plot, cli_scale *x, cli_scale *y);
// Whether a value can stand on the axis, and whether it stands within what is shown.
bool cli_scale_usable(const cli_scale *scale, double value);
bool cli_scale_shows(const cli_scale *scale, double value);
// Where a usable value stands.
double cli_scale_at(const cli_scale *scale, double value);
const char *cli_scale_label(const cli_scale *scale, double tick, char buffer[32]);

#endif
