/*
 * host_memory.h: taking memory of the host in large pieces without taking it from everybody else.
 *
 * Linux does not refuse pages that it does not have: it takes them from page caches and then kills a process.
 * So whoever is about to touch a large piece claims it first. What may be claimed is what the tightest limit
 * leaves: the host's memory, that of any memory cgroup above this process (a container, a slice), or the
 * address space that it may have (RLIMIT_AS), less a sixteenth that stays free. What is left is read anew after
 * 20 ms, or before that where it matters what others may have taken or given back by then. Any thread.
 *
 * Where /proc/meminfo cannot be read, the host's size is known by sysinfo(2), but not what others use of it.
 * Then only what this process uses is taken off.
 */
#ifndef KOPS_HOST_MEMORY_H
#define KOPS_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define HOST_PAGE_BYTES 4096u

/*
 * 0 when so many bytes, less than 2^62, fit beside the open claims. Else KOPS_E_NOMEM with a sentence for
 * clients in why[why_bytes]; host_memory_tell_refusals() has the numbers told. The claim is open until
 * host_memory_settle(), which may settle it in parts as its pages are touched and so count as used by
 * themselves, or when it is known that they will not be.
 */
int host_memory_claim(uint64_t bytes, char *why, size_t why_bytes);
void host_memory_settle(uint64_t bytes);

/* Whom to tell, at each refusal and in any thread, why there is no room. NULL, as at first: nobody. */
void host_memory_tell_refusals(void (*tell)(const char *details));

/* As host_memory_claim(), but only tells whether there is room: nothing is claimed. */
int host_memory_try(uint64_t bytes, char *why, size_t why_bytes);

/*
 * Pages of a file, such as a memfd, that somebody else can free at any time: whoever touches them next takes
 * memory for them. So for as long as they are claimed, those that are missing count as promised, at whatever
 * time somebody asks. Those that are there are in use already, and count once. If they may be another cgroup's
 * (is_foreign), they count as promised against limits of cgroups, since after a hole they would be ours:
 * except those that must already be in our cgroup.
 */
struct host_memory_pages {
	int fd;
	bool is_foreign;
	/* its own */
	uint64_t bytes;
	struct list_link link; /* while it has bytes */
};

/*
 * Claims so many bytes of them instead of those claimed before, wherever in the file they are; 0 ends the
 * claim. The descriptor has to stay until then. Nothing is refused: returns how many bytes more are promised
 * now, which host_memory_check() may find to be too many.
 */
uint64_t host_memory_claim_pages(struct host_memory_pages *pages, uint64_t bytes);

/* KOPS_E_NOMEM as above where the open claims do not fit, of which `bytes` are the caller's latest. */
int host_memory_check(uint64_t bytes, char *why, size_t why_bytes);

/* Small pieces of one kind, less than a MiB each, that are not claimed one by one. */
struct host_memory_growth {
	uint64_t free_bytes;    /* that many are never asked for */
	uint64_t checked_bytes; /* its own */
};

/* Whether there may be so many bytes of them, more than before. Asks once a MiB. */
bool host_memory_may_grow(struct host_memory_growth *growth, uint64_t bytes);

/* All shared memory that this process has mapped, claimed or not: so many bytes more, or less. */
void host_memory_add_file(int64_t bytes);

/* How many of so many bytes of a file, wherever they are in it, may be without pages. */
uint64_t host_memory_missing(int fd, uint64_t bytes);

/* The tightest limit itself, whatever is in use; UINT64_MAX where it cannot be known. */
uint64_t host_memory_total(void);

/* What a claim may have now, the open ones taken off; UINT64_MAX where it cannot be known. */
uint64_t host_memory_room(void);

/*
 * 0 where so many bytes may be mapped without claiming them, as memory of a client's. KOPS_E_NOMEM with a
 * sentence where that would leave less than a sixteenth of the address space that kopsd may have (RLIMIT_AS),
 * which sessions and threads need. One system call where there is no limit.
 */
int host_memory_may_map(uint64_t bytes, char *why, size_t why_bytes);

/* Whether so much writable memory can be mapped, however much of it is there. Else KOPS_E_NOMEM with a
 * sentence. */
int host_memory_try_map(uint64_t bytes, char *why, size_t why_bytes);

/* How many mappings the kernel lets a process have; its default where that cannot be known. */
uint64_t host_memory_max_mappings(void);

/* Whether the host has swap: then any page may have to come from a disk. */
bool host_memory_can_swap(void);

/* ---- For tests ---- */

/* The same for a made-up host: where /proc and /sys are, NULL for the real ones. Not while others use this. */
void host_memory_set_root(const char *root);

#endif
