/* repeat.h: which jobs may run twice. */
#ifndef KOPS_CLIENT_REPEAT_H
#define KOPS_CLIENT_REPEAT_H

#include "libkops/base/state.h"

/*
 * Sets `repeatable` of every job in flight, assuming that the daemon ran any part of the jobs that were sent.
 */
void client_repeat_decide(kops *k);

#endif
