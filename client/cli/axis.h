/*
 * axis.h: one axis of a plot: where a value lies, and which values are worth a tick.
 */
#ifndef KOPS_CLI_AXIS_H
#define KOPS_CLI_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#define AXIS_TICKS_MAX 64

struct axis {
	double low, high; /* values at the ends; above 0 on a logarithmic axis */
	double from, to;  /* pixels of the ends */
	bool log;
};

double axis_at(const struct axis *axis, double value);
bool axis_holds(const struct axis *axis, double value);

/*
 * Ticks in ascending order, how many. By tens: 1, 2, 5 or whole powers, as many as read well. By twos: powers
 * of two, eight at most.
 */
size_t axis_ticks_by_tens(const struct axis *axis, double ret_ticks[AXIS_TICKS_MAX]);
size_t axis_ticks_by_twos(const struct axis *axis, double ret_ticks[AXIS_TICKS_MAX]);

#endif
