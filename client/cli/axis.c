#include "axis.h"

#include <math.h>

#define TICKS_WANTED 6
#define TWOS_MAX     8

double axis_at(const struct axis *axis, double value)
{
	double part = axis->log ? log(value / axis->low) / log(axis->high / axis->low)
	                        : (value - axis->low) / (axis->high - axis->low);

	return axis->from + part * (axis->to - axis->from);
}

/* With a little room for rounding. */
bool axis_holds(const struct axis *axis, double value)
{
	double room = 1e-9 * (axis->high - axis->low);

	return value >= axis->low - room && value <= axis->high + room;
}

static size_t linear_ticks(const struct axis *axis, double ret_ticks[AXIS_TICKS_MAX])
{
	double rough = (axis->high - axis->low) / TICKS_WANTED, ten = pow(10, floor(log10(rough)));
	double step = rough > 5 * ten ? 10 * ten : rough > 2 * ten ? 5 * ten : rough > ten ? 2 * ten : ten;
	size_t n = 0;

	for (double i = ceil(axis->low / step); axis_holds(axis, i * step) && n < AXIS_TICKS_MAX; i++)
		ret_ticks[n++] = i * step;
	return n;
}

size_t axis_ticks_by_tens(const struct axis *axis, double ret_ticks[AXIS_TICKS_MAX])
{
	static const double within[] = {1, 2, 5};
	double decades = log10(axis->high / axis->low);
	size_t per_decade = decades < 2.5 ? 3 : 1, n = 0;

	if (!axis->log)
		return linear_ticks(axis, ret_ticks);
	for (double ten = floor(log10(axis->low)); ten <= log10(axis->high); ten++)
		for (size_t i = 0; i < per_decade; i++) {
			double value = within[i] * pow(10, ten);
			if (axis_holds(axis, value) && n < AXIS_TICKS_MAX)
				ret_ticks[n++] = value;
		}
	return n;
}

size_t axis_ticks_by_twos(const struct axis *axis, double ret_ticks[AXIS_TICKS_MAX])
{
	double first = ceil(log2(axis->low) - 1e-9), last = floor(log2(axis->high) + 1e-9);
	double step = ceil((last - first + 1) / TWOS_MAX);
	size_t n = 0;

	for (double two = first; two <= last && n < AXIS_TICKS_MAX; two += step)
		ret_ticks[n++] = pow(2, two);
	return n;
}
