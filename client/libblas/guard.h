/*
 * guard.h: what a caller must not notice of this library's own work.
 *
 * BLAS functions are no cancellation points, and raise no floating-point flags but their products'. Waiting for
 * kopsd is one, and numbers are computed about each call.
 */
#ifndef KOPS_LIBBLAS_GUARD_H
#define KOPS_LIBBLAS_GUARD_H

#include <fenv.h>
#include <pthread.h>
#include <signal.h>

struct guard {
	fenv_t flags;
	int cancellation;
};

static inline void guard_begin(struct guard *g)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancellation);
	feholdexcept(&g->flags);
}

static inline void guard_end(const struct guard *g)
{
	fesetenv(&g->flags);
	pthread_setcancelstate(g->cancellation, NULL);
}

/* For work that a signal's handler must not leave by longjmp(): locks are held, or other threads use its stack.
 * A thread's own faults stay as they are. */
static inline void guard_block_signals(sigset_t *before)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t sent;
	sigfillset(&sent);
	for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&sent, faults[i]);
	pthread_sigmask(SIG_BLOCK, &sent, before);
}

static inline void guard_restore_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

#endif
