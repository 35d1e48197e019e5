#include "why.h"

#include <stdarg.h>
#include <stdio.h>

#include "kops.h"

int why_invalid(char why[CLI_WHY_BYTES], const char *format, ...)
{
	va_list args;

	if (why == NULL)
		return KOPS_E_INVALID;
	va_start(args, format);
	vsnprintf(why, CLI_WHY_BYTES, format, args);
	va_end(args);
	return KOPS_E_INVALID;
}
