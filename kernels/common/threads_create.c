/* threads_create.c: begins a thread. The CUDA module has it too, without the pool of threads.c. */
#include <signal.h>

#include "common/threads.h"

int threads_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *arg), void *arg)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t sent, before;
	int rc;

	sigfillset(&sent);
	for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++)
		sigdelset(&sent, own[i]);
	pthread_sigmask(SIG_BLOCK, &sent, &before); /* a thread begins with its creator's mask */
	rc = pthread_create(thread, attributes, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}
