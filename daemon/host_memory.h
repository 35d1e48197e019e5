/*
 * host_memory.h: taking memory of the host in large pieces without taking it from everybody else.
 *
 * Linux does not refuse pages that it does not have: it takes them from page caches and then kills somebody. So
 * who is about to touch a large piece claims it first. Any thread.
 */
#ifndef KOPS_HOST_MEMORY_H
#define KOPS_HOST_MEMORY_H

#include <stdint.h>

/*
 * 0 when the host can spare so many bytes beside the claims that are open: a sixteenth of its memory stays
 * free. Else KOPS_E_NOMEM. The claim is open until host_memory_settle(), when its pages have been touched, or
 * will not be, and so count as used by themselves.
 */
int host_memory_claim(uint64_t bytes);
void host_memory_settle(uint64_t bytes);

#endif
