/* assert_refused.h: an op whose rules do not allow what it is asked. */
#ifndef KOPS_TEST_ASSERT_REFUSED_H
#define KOPS_TEST_ASSERT_REFUSED_H

#include <string.h>

#include "kernel.h"

/* text: of the sentence that says why. */
static inline void assert_refused(struct op_args args, int code, const char *text)
{
	char why[WHY_BYTES] = "";

	assert_int_equal(op_check(&args, why), code);
	if (!strstr(why, text))
		fail_msg("\"%s\" lacks \"%s\"", why, text);
}

#endif
