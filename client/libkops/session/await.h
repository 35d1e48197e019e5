/* await.h: waiting for the daemon: polling and sleeping. */
#ifndef KOPS_CLIENT_AWAIT_H
#define KOPS_CLIENT_AWAIT_H

#include "libkops/base/state.h"

/*
 * Runs the connection until waiter->done. Returns the waiter's status, and sets kops_error() if that is
 * negative. KOPS_E_TIMEOUT after timeout_us (CLIENT_NEVER: no limit), with a sentence for calls that have the
 * handle's timeout; the caller must then withdraw the waiter.
 */
int client_await(kops *k, const struct waiter *waiter, int64_t timeout_us);

/*
 * Waits until until_us for the answer to a call whose verb and before are set. The reply is in the call's
 * waiter.
 */
int client_ask(kops *k, struct call *call, int64_t until_us);

/* Does what kops_ping() does, until until_us. */
int client_ping(kops *k, int64_t until_us);

#endif
