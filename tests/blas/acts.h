/* acts.h: programs of several acts, between which a test does something to kopsd (case.py, run_acts()). */
#ifndef KOPS_TEST_BLAS_ACTS_H
#define KOPS_TEST_BLAS_ACTS_H

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

static void next_act(void)
{
	char byte;
	if (write(1, ".", 1) != 1 || read(0, &byte, 1) != 1)
		exit(2);
}

static sigjmp_buf outside;

/* A signal's handler. */
static void leave(int signal)
{
	(void)signal;
	siglongjmp(outside, 1);
}

#endif
