/*
 * ring_memory.h: the memory that libkops and kopsd share for runs of prepared jobs, beside the socket.
 *
 * It has two rings of equal size, each with one writer and one reader: runs to the daemon, receipts back. A
 * tail counts what was put in so far, a head what was taken; both wrap at 2^32. Entry i of a ring holds what
 * was put in as number i (modulo entries), counted from 0.
 *
 * Neither side wakes the other while that is awake. A side about to sleep sets its word and then looks at its
 * ring once more. A side that has put something in and finds that word set clears it and sends a datagram: Wake
 * to the daemon, or a Reply with Woken to the client. Both use sequentially consistent stores and loads for
 * this, so that at least one sees the other.
 *
 * Neither side trusts what the other writes. Each keeps its own positions in private memory, and copies an
 * entry before it checks the entry.
 */
#ifndef KOPS_RING_MEMORY_H
#define KOPS_RING_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define RING_ENTRIES_MAX 256u /* a power of 2 */
#define RING_HEAD_BYTES  4096u

/* Each word has a cache line of its own. */
struct ring_word {
	_Alignas(64) uint32_t value;
};

struct ring_run {
	uint64_t prepared; /* as in Run */
	uint64_t id;       /* of the request, as in Request */
};

#define RING_PREPARED 1u /* Receipt.prepared */
#define RING_GRAPH    2u /* Receipt.graph */

/* The receipt of a successful run. A Reply answers everything else: failures, and receipts with text, or with
 * times of single ops as for jobs with `timed`. */
struct ring_end {
	uint64_t id;
	uint32_t flags;
	uint32_t pauses;                                               /* as in Receipt, */
	double queue_us, upload_us, compute_us, download_us, total_us; /* likewise, */
	double paused_us;                                              /* likewise */
};

struct ring_memory {
	struct ring_word run_tail, run_head; /* written by the client; by the daemon */
	struct ring_word end_tail, end_head; /* written by the daemon; by the client */
	struct ring_word daemon_sleeps, client_sleeps;
	struct ring_word client_spins; /* by the client: µs that it polls for receipts before it sleeps */
};

_Static_assert(sizeof(struct ring_run) == 16 && sizeof(struct ring_end) == 64, "the layout is protocol");
_Static_assert(sizeof(struct ring_memory) == 7 * 64 && RING_HEAD_BYTES >= sizeof(struct ring_memory),
               "likewise");

static inline uint64_t ring_bytes(uint32_t entries)
{
	return RING_HEAD_BYTES + entries * (sizeof(struct ring_run) + sizeof(struct ring_end));
}

static inline struct ring_run *ring_runs(struct ring_memory *memory)
{
	return (struct ring_run *)((char *)memory + RING_HEAD_BYTES);
}

static inline struct ring_end *ring_ends(struct ring_memory *memory, uint32_t entries)
{
	return (struct ring_end *)(ring_runs(memory) + entries);
}

/* A test weakens this order, to see that wake-ups are then lost. */
#ifndef RING_ORDER
#define RING_ORDER __ATOMIC_SEQ_CST
#endif

static inline uint32_t ring_load(const struct ring_word *word)
{
	return __atomic_load_n(&word->value, RING_ORDER);
}

/* Whoever loads this value sees all earlier writes. */
static inline void ring_store(struct ring_word *word, uint32_t value)
{
	__atomic_store_n(&word->value, value, RING_ORDER);
}

/* Stores a new head; nobody sleeps on it. */
static inline void ring_store_head(struct ring_word *head, uint32_t value)
{
	__atomic_store_n(&head->value, value, __ATOMIC_RELEASE);
}

/* Stores a new tail. Returns true if the reader has to be woken. */
static inline bool ring_publish(struct ring_word *tail, uint32_t value, struct ring_word *reader_sleeps)
{
	ring_store(tail, value);
	return ring_load(reader_sleeps) && __atomic_exchange_n(&reader_sleeps->value, 0, __ATOMIC_SEQ_CST);
}

#endif
