/* decimal.c: switches this thread to the C locale for a moment. */
#include "decimal.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

struct locale {
	locale_t c, before;
};

/* If out of memory, the program's locale stays. */
static struct locale enter(void)
{
	struct locale l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
	l.before = uselocale(l.c);
	return l;
}

static void leave(struct locale l)
{
	uselocale(l.before);
	if (l.c)
		freelocale(l.c);
}

bool decimal_read(const char *text, double *ret)
{
	char *end;
	struct locale l = enter();
	double value = strtod(text, &end);
	leave(l);
	if (end == text || *end)
		return false;
	*ret = value;
	return true;
}

const char *decimal_write(char text[DECIMAL_BYTES], double value)
{
	struct locale l = enter();
	snprintf(text, DECIMAL_BYTES, "%g", value);
	leave(l);
	return text;
}

int decimal_print(char *text, size_t size, const char *format, va_list args)
{
	struct locale l = enter();
	int n = vsnprintf(text, size, format, args);
	leave(l);
	return n;
}
