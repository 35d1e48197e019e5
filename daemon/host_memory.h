/*
 * host_memory.h: claims large pieces of the host's memory, so that others do not run out. Any thread.
 *
 * Linux does not refuse pages that it does not have: it takes them from page caches and then kills a process.
 * So callers claim a large piece before they touch it. What may be claimed is what the tightest limit leaves,
 * less a sixteenth of that limit. The limits are the host's memory, that of each memory cgroup above this
 * process (a container, a slice), and the address space (RLIMIT_AS). kopsd reads them again after 20 ms, or
 * sooner if what others may have taken or freed by then matters.
 *
 * If /proc/meminfo cannot be read, sysinfo(2) gives the host's size, but not what others use. Then only what
 * this process uses is subtracted.
 */
#ifndef KOPS_HOST_MEMORY_H
#define KOPS_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define HOST_PAGE_BYTES 4096u

/*
 * Returns 0 if `bytes`, less than 2^62, fit beside the open claims. Otherwise KOPS_E_NOMEM with a sentence for
 * clients in why[why_bytes]; host_memory_tell_refusals() gets the numbers. The claim is open until
 * host_memory_settle(). That may settle it step by step, when pages are touched and so count as used, or will
 * not be touched.
 */
int host_memory_claim(uint64_t bytes, char *why, size_t why_bytes);
void host_memory_settle(uint64_t bytes);

/* Sets a function that is told at each refusal, in any thread, why there is no room. NULL, as initially:
 * none. */
void host_memory_tell_refusals(void (*tell)(const char *details));

/* Like host_memory_claim(), but claims nothing. */
int host_memory_try(uint64_t bytes, char *why, size_t why_bytes);

/*
 * Pages of a file, such as a memfd, that another process can free at any time. Touching them then takes memory
 * again. So while they are claimed, missing pages count as promised, whenever that is checked. Present pages
 * are in use already, and count once. If they may belong to another cgroup (is_foreign), they also count as
 * promised against cgroups' limits, because after a hole they would be charged to ours. Those that must be in
 * our cgroup already are excepted.
 */
struct host_memory_pages {
	int fd;
	bool is_foreign;
	/* private */
	uint64_t bytes;
	struct list_link link; /* linked while it has bytes */
};

/*
 * Claims `bytes` of the pages, anywhere in the file, instead of the previous claim; 0 ends the claim. The
 * descriptor must stay open until then. Never refuses: returns how many more bytes are promised now, for
 * host_memory_check() to check.
 */
uint64_t host_memory_claim_pages(struct host_memory_pages *pages, uint64_t bytes);

/* Returns KOPS_E_NOMEM as above if the open claims do not fit; `bytes` of them are the caller's latest. */
int host_memory_check(uint64_t bytes, char *why, size_t why_bytes);

/* Small pieces of one kind, each less than a MiB, that are not claimed one by one. */
struct host_memory_growth {
	uint64_t free_bytes;    /* the first bytes, which are not checked */
	uint64_t checked_bytes; /* private */
};

/* Returns true if the pieces may grow to `bytes`. Checks once per MiB. */
bool host_memory_may_grow(struct host_memory_growth *growth, uint64_t bytes);

/* Adds to the shared memory that this process has mapped, claimed or not; bytes may be negative. */
void host_memory_add_file(int64_t bytes);

/* Returns how many of `bytes` bytes, anywhere in the file, may have no pages. */
uint64_t host_memory_missing(int fd, uint64_t bytes);

/* The tightest limit, whatever is in use; UINT64_MAX: unknown. */
uint64_t host_memory_total(void);

/* What may be claimed now, beside the open claims; UINT64_MAX: unknown. */
uint64_t host_memory_room(void);

/*
 * Returns 0 if `bytes` of a client's memory may be mapped without a claim. KOPS_E_NOMEM with a sentence if that
 * would leave less than a sixteenth of the address space (RLIMIT_AS), which sessions and threads need. One
 * system call if there is no limit.
 */
int host_memory_may_map(uint64_t bytes, char *why, size_t why_bytes);

/* Returns 0 if this much writable memory can be mapped, whether or not it exists. Otherwise KOPS_E_NOMEM with a
 * sentence. */
int host_memory_try_map(uint64_t bytes, char *why, size_t why_bytes);

/* How many mappings the kernel lets a process have; the kernel's default if unknown. */
uint64_t host_memory_max_mappings(void);

/* Returns true if the host has swap, so that any page may have to come from a disk. */
bool host_memory_can_swap(void);

/* ---- For tests ---- */

/* Uses the /proc and /sys below root; NULL: the real ones. No other thread may use this file meanwhile. */
void host_memory_set_root(const char *root);

#endif
