/*
 * guard.h: hides the side effects of this library's work from the caller.
 *
 * BLAS functions are no cancellation points, and raise only their products' floating-point flags. Waiting for
 * kopsd is a cancellation point, and measuring calls raises flags.
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

/*
 * Blocks signals while locks are held or other threads use this stack, so that no signal handler leaves by
 * longjmp(). A thread's own faults stay unblocked.
 */
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
