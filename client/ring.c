/* ring.c: runs of prepared jobs by memory shared with the daemon; proto/ring_memory.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client.h"
#include "cpu_pause.h"

#define SPIN_LOOKS 64 /* at the ring, for each at the socket */

/* ---- Opening and closing ---- */

/* When the first job is prepared: who sends no job twice needs none. */
void client_ring_want(kops *k)
{
	Kops__V1__OpenRing open = KOPS__V1__OPEN_RING__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;

	if (k->ring_limit == 0 || k->ring_request)
		return;
	open.entries = k->ring_limit;
	request.body_case = KOPS__V1__REQUEST__BODY_OPEN_RING;
	request.open_ring = &open;
	client_send_silent(k, &request);
	k->ring_request = request.id;
	k->ring_awaited = request.id != 0;
}

/* Where it fails, runs go by the socket. The child of a fork() has no business in it. */
const char *client_ring_answered(kops *k, const Kops__V1__Reply *reply, const int *fds, unsigned n_fds)
{
	const Kops__V1__Ring *ring = reply->ring;
	struct stat st;
	void *memory;
	int seals;

	k->ring_awaited = false;
	if (reply->status < 0)
		return NULL;
	if (reply->body_case != KOPS__V1__REPLY__BODY_RING || n_fds != 1 || ring->entries < 1 ||
	    ring->entries > RING_ENTRIES_MAX || (ring->entries & (ring->entries - 1)) ||
	    ring->bytes < ring_bytes(ring->entries))
		return k->fds_lost ? NULL : "an invalid ring";
	if (fstat(fds[0], &st) < 0 || st.st_size < (off_t)ring_bytes(ring->entries))
		return "a ring that is too small";
	seals = fcntl(fds[0], F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "a ring that could shrink";
	memory = mmap(NULL, ring_bytes(ring->entries), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, ring_bytes(ring->entries), MADV_DONTFORK);
	k->ring = memory;
	k->ring_entries = ring->entries;
	k->ring_put = k->ring_taken = 0;
	ring_store(&k->ring->client_spins, k->spin_us);
	return NULL;
}

void client_ring_close(kops *k)
{
	if (k->ring && !client_is_copy(k))
		munmap(k->ring, ring_bytes(k->ring_entries));
	k->ring = NULL;
	k->ring_request = 0;
	k->ring_awaited = false;
}

/* ---- Runs ---- */

static void wake_daemon(kops *k)
{
	Kops__V1__Wake wake = KOPS__V1__WAKE__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;

	request.body_case = KOPS__V1__REQUEST__BODY_WAKE;
	request.wake = &wake;
	client_send_silent(k, &request);
}

/* What was sent by the socket is not waited for by what the ring brings, so it must all have been answered. */
bool client_ring_send(kops_job *job)
{
	kops *k = job->k;
	struct ring_run *run;

	if (!k->ring || k->outbox || k->by_ring != k->jobs_out || k->by_ring == k->ring_entries)
		return false;
	run = &ring_runs(k->ring)[k->ring_put % k->ring_entries];
	run->prepared = job->number;
	run->id = job->id;
	job->sent = job->by_ring = true;
	k->by_ring++;
	if (k->watched >= 0) /* an event loop waits for the socket */
		ring_store(&k->ring->client_sleeps, 1);
	if (ring_publish(&k->ring->run_tail, ++k->ring_put, &k->ring->daemon_sleeps))
		wake_daemon(k);
	job->due_us = job->usual_us > 0 ? client_now_us() + (int64_t)job->usual_us : 0;
	return true;
}

/* ---- Ends ---- */

/* Without the ring first, so that nobody looks at it once more. */
static void violated(kops *k, const char *phrase)
{
	client_ring_close(k);
	client_violation(k, phrase);
}

/* A phrase on a protocol violation. */
static const char *take_one(kops *k, uint32_t there)
{
	struct ring_end end;

	if (there > k->ring_entries)
		return "more ends in the ring than it has room for";
	end = ring_ends(k->ring, k->ring_entries)[k->ring_taken % k->ring_entries];
	ring_store_head(&k->ring->end_head, ++k->ring_taken);
	return client_job_ended_by_ring(k, &end);
}

/* Those that are there. False when none was. */
bool client_ring_take(kops *k)
{
	bool any = false;

	while (k->ring && k->by_ring > 0) {
		uint32_t there = ring_load(&k->ring->end_tail) - k->ring_taken;
		const char *phrase;

		if (there == 0)
			break;
		any = true;
		phrase = take_one(k, there);
		if (client_is_copy(k)) /* made by a callback */
			break;
		if (phrase)
			violated(k, phrase);
	}
	return any;
}

bool client_ring_lets_sleep(const kops *k)
{
	if (!k->ring || k->by_ring == 0)
		return true;
	ring_store(&k->ring->client_sleeps, 1);
	return ring_load(&k->ring->end_tail) == k->ring_taken;
}

bool client_ring_may_sleep(kops *k)
{
	return client_ring_lets_sleep(k) || !client_ring_take(k);
}

void client_ring_woke_up(kops *k)
{
	if (k->ring)
		ring_store(&k->ring->client_sleeps, 0);
}

/* True as soon as there is an end; false when it is worth a look at the socket. */
bool client_ring_spin(kops *k)
{
	for (int i = 0; i < SPIN_LOOKS && k->ring && k->by_ring > 0; i++) {
		if (client_ring_take(k))
			return true;
		cpu_pause();
	}
	return false;
}
