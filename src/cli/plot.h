// Line charts, as SVG: what the commands draw.
#ifndef KN_CLI_PLOT_H
#define KN_CLI_PLOT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

// Texts are any bytes: those that are no UTF-8, or that XML cannot say, are drawn as U+FFFD. NULL is none.

typedef struct cli_axis {
    const char *label;
    bool log;
    double low, high; // what is shown when low < high; otherwise (both 0, or NAN) what the points need
} cli_axis;

// Points are joined in the order given. Those that are not finite (beyond 1e300), or not positive on a
// logarithmic axis, are left out, and so is the line to them.
typedef struct cli_curve {
    const char *name; // in the legend
    const double *x, *y;
    const char *const *labels; // NULL, or what is told of each point beside its values
    size_t count;
    bool dashed;
} cli_curve;

typedef struct cli_plot {
    const char *title;
    cli_axis x, y;
    const cli_curve *curves; // the first 8 differ in colour
    size_t count;
    const char *marked; // what the vertical line at marked_x is; NULL: there is none
    double marked_x;
} cli_plot;

// Replaces `path` whole or not at all (base/file.h says what fails). The same plot is the same bytes, in any
// locale. Nothing is kept of the plot; any thread may call.
knnlm_status cli_plot_write(const char *path, const cli_plot *plot);

#endif
