/*
 * prepared.h: jobs that a client sends repeatedly. kopsd keeps their Submit. The job made from it stays ready:
 * decoded, checked, bound to its buffers and planned. A run of it is then a number. Loop thread only.
 *
 *     KEPT ⇄ READY
 *
 * READY jobs take memory and hold their buffers. When memory is short, the least recently used jobs of the user
 * who holds most fall back to KEPT. So do jobs whose buffers were dropped or whose plan no longer holds. The
 * next run makes them again from the message, as if it had just arrived. Clients do not notice: only their own
 * limits can refuse to prepare a job, and then the job is sent as before.
 */
#ifndef KOPS_PREPARED_H
#define KOPS_PREPARED_H

#include "job/job.h"
#include "job/shortest.h"
#include "kops.pb-c.h"

#define PREPARED_MAX 8192u /* of a session */

struct prepared {
	struct list_link link; /* in account.ready, while it has a job */
	struct idmap *map;     /* of its session, from number to this */
	uint64_t number;
	struct engine *engine;
	struct account *account;
	struct job *job;      /* READY or out; NULL: KEPT */
	struct shortest took; /* of its runs */
	bool is_told;         /* a receipt has described this job's plan */
	unsigned plans;       /* engine->plans when the job was made */
	unsigned pinned;      /* its buffers that were registered for DMA then */
	uint64_t deadline_us;
	size_t message_bytes;
	uint8_t message[]; /* the Request with its Submit */
};

/*
 * Keeps a message, which contains `submit`, under the submit's number in the session's map. It replaces an
 * earlier message of that number. KOPS_E_QUOTA with a sentence in why, KOPS_E_NOMEM.
 */
int prepared_new(struct engine *engine, struct account *account, struct idmap *map,
                 const Kops__V1__Submit *submit, const uint8_t *message, size_t bytes,
                 struct prepared **ret_prepared, char why[WHY_BYTES]);

/* Explains why there is no room for more of this user's. */
void prepared_explain(const struct engine *engine, const struct account *account, char why[WHY_BYTES]);

/* Forgets a prepared job; a job in flight ends as if it had not been prepared. */
void prepared_forget(struct prepared *prepared);

/* The same for one that is not in its session's map. */
void prepared_free(struct prepared *prepared);

/* Takes over the planned job, which becomes READY each time it ends. Returns false if there is no room. */
bool prepared_take(struct prepared *prepared, struct job *job);

/* Returns the job if it is READY and its plan holds, and marks it as used. NULL: make it from the message. */
struct job *prepared_ready_job(struct prepared *prepared);

/* Makes a READY job KEPT; one in flight, when it ends. */
void prepared_cool(struct prepared *prepared);

/* Takes over the session's reference to a dropped buffer, and releases it when no prepared job holds the
 * buffer. Meanwhile no run with it starts. */
void prepared_drop_buffer(struct buffer *buffer);

/* Call it when a prepared job's run has ended and was answered. */
void prepared_job_ended(struct job *job);

#endif
