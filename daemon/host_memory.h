/*
 * host_memory.h: taking memory of the host in large pieces without taking it from everybody else.
 *
 * Linux does not refuse pages that it does not have: it takes them from page caches and then kills somebody. So
 * whoever is about to touch a large piece claims it first. What may be claimed is what the tightest limit
 * leaves: the host's memory, or that of any memory cgroup above this process (a container, a slice), less a
 * sixteenth that stays free. Any thread.
 */
#ifndef KOPS_HOST_MEMORY_H
#define KOPS_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * 0 when so many bytes fit beside the open claims. Else KOPS_E_NOMEM with a sentence that has the numbers in
 * why[why_bytes]. The claim is open until host_memory_settle(), which may settle it in parts as its pages are
 * touched and so count as used by themselves, or when it is known that they will not be.
 */
int host_memory_claim(uint64_t bytes, char *why, size_t why_bytes);
void host_memory_settle(uint64_t bytes);

/* The tightest limit itself, whatever is in use; 0 where it cannot be known. */
uint64_t host_memory_total(void);

/* What a claim may have now, the open ones taken off; UINT64_MAX where it cannot be known. */
uint64_t host_memory_room(void);

/* Whether the host has swap: then any page may have to come from a disk. */
bool host_memory_can_swap(void);

/* ---- For tests ---- */

/* The same for a made-up host: where /proc and /sys are, NULL for the real ones. Not while others use this. */
void host_memory_set_root(const char *root);

#endif
