/* ring.c: runs prepared jobs through memory shared with the daemon; see proto/ring_memory.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libkops/base/base.h"
#include "libkops/wire/link.h"
#include "libkops/wire/ring.h"
#include "libkops/wire/wire.h"

/* ---- Opening and closing ---- */

/* Opens the ring when the first job is prepared: a program that repeats no job needs none. */
void client_ring_want(kops *k)
{
	Kops__V1__OpenRing open = KOPS__V1__OPEN_RING__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;

	if (k->ring.limit == 0 || k->ring.request)
		return;
	open.entries = k->ring.limit;
	request.body_case = KOPS__V1__REQUEST__BODY_OPEN_RING;
	request.open_ring = &open;
	client_send_silent(k, &request);
	k->ring.request = request.id;
	k->ring.awaited = request.id != 0;
}

/* If this fails, runs go by the socket. A child of fork() must not map the ring. */
const char *client_ring_answered(kops *k, const Kops__V1__Reply *reply, const int *fds, unsigned n_fds)
{
	const Kops__V1__Ring *ring = reply->ring;
	struct stat st;
	void *memory;
	int seals;

	k->ring.awaited = false;
	if (reply->status < 0)
		return NULL;
	if (reply->body_case != KOPS__V1__REPLY__BODY_RING || n_fds != 1 || ring->entries < 1 ||
	    ring->entries > RING_ENTRIES_MAX || (ring->entries & (ring->entries - 1)) ||
	    ring->bytes < ring_bytes(ring->entries))
		return k->wire.fds_lost ? NULL : "an invalid ring";
	if (fstat(fds[0], &st) < 0 || st.st_size < (off_t)ring_bytes(ring->entries))
		return "a ring that is too small";
	seals = fcntl(fds[0], F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "a ring without the seal F_SEAL_SHRINK";
	memory = mmap(NULL, ring_bytes(ring->entries), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, ring_bytes(ring->entries), MADV_DONTFORK);
	k->ring.memory = memory;
	k->ring.entries = ring->entries;
	k->ring.put = k->ring.taken = 0;
	ring_store(&k->ring.memory->client_spins, k->spin_us);
	return NULL;
}

void client_ring_close(kops *k)
{
	if (k->ring.memory && !client_is_copy(k))
		munmap(k->ring.memory, ring_bytes(k->ring.entries));
	k->ring.memory = NULL;
	k->ring.request = 0;
	k->ring.awaited = false;
}

/* ---- Runs ---- */

static void wake_daemon(kops *k)
{
	Kops__V1__Wake wake = KOPS__V1__WAKE__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;

	request.body_case = KOPS__V1__REQUEST__BODY_WAKE;
	request.wake = &wake;
	if (client_send_silent(k, &request) < 0) /* out of memory: kopsd would sleep on */
		client_link_broken(k);
}

bool client_ring_put(kops *k, uint64_t prepared, uint64_t id)
{
	struct ring *ring = &k->ring;
	struct ring_run *run;

	if (!ring->memory || k->wire.outbox || ring->runs == ring->entries)
		return false;
	run = &ring_runs(ring->memory)[ring->put % ring->entries];
	run->prepared = prepared;
	run->id = id;
	ring->runs++;
	if (k->link.watched >= 0) /* an event loop waits for the socket */
		ring_store(&ring->memory->client_sleeps, 1);
	if (ring_publish(&ring->memory->run_tail, ++ring->put, &ring->memory->daemon_sleeps))
		wake_daemon(k);
	return true;
}

/* ---- Ends ---- */

bool client_ring_next(kops *k, struct ring_end *ret_end, const char **ret_phrase)
{
	struct ring *ring = &k->ring;
	uint32_t there;

	if (!ring->memory || ring->runs == 0)
		return false;
	there = ring_load(&ring->memory->end_tail) - ring->taken;
	if (there > ring->entries)
		*ret_phrase = "more ends in the ring than it has entries";
	if (there == 0 || there > ring->entries)
		return false;
	*ret_end = ring_ends(ring->memory, ring->entries)[ring->taken % ring->entries];
	ring_store_head(&ring->memory->end_head, ++ring->taken);
	return true;
}

bool client_ring_lets_sleep(const kops *k)
{
	if (!k->ring.memory || k->ring.runs == 0)
		return true;
	ring_store(&k->ring.memory->client_sleeps, 1);
	return ring_load(&k->ring.memory->end_tail) == k->ring.taken;
}

void client_ring_woke_up(kops *k)
{
	if (k->ring.memory)
		ring_store(&k->ring.memory->client_sleeps, 0);
}
