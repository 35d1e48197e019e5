/*
 * prepared.h: jobs that a client sends again and again. Their Submit is kept, and the job made of it stays
 * ready: decoded, checked, bound to its buffers, planned. A run of it is then a number. Loop thread only.
 *
 *     KEPT ⇄ READY
 *
 * READY jobs take memory and hold their buffers. When memory is short, the least recently used jobs of the user
 * who holds most fall back to KEPT. So do jobs whose buffers were dropped or whose plan no longer holds. The
 * next run makes them again from the message, as if it had just arrived. So a client never has to know: only
 * its own limits can refuse to prepare a job, and then it is sent as before.
 */
#ifndef KOPS_PREPARED_H
#define KOPS_PREPARED_H

#include "job/job.h"
#include "kops.pb-c.h"

#define PREPARED_MAX 8192u /* of a session */

struct prepared {
	struct list_link link; /* in account.ready, while it has a job */
	struct idmap *map;     /* of its session: its number leads here */
	uint64_t number;
	struct engine *engine;
	struct account *account;
	struct job *job; /* READY or out; NULL: KEPT */
	bool is_told;    /* a receipt has told all about this job's plan */
	unsigned plans;  /* engine->plans when it was made */
	unsigned pinned; /* buffers of it that were registered for DMA then */
	uint64_t deadline_us;
	double took_us; /* about, of the last runs; 0: not known */
	size_t message_bytes;
	uint8_t message[]; /* the Request that its Submit came in */
};

/*
 * Keeps a message, of which `submit` is a part, under the number in that, in the session's map; what was there
 * is forgotten. KOPS_E_QUOTA with a sentence in why, KOPS_E_NOMEM.
 */
int prepared_new(struct engine *engine, struct account *account, struct idmap *map,
                 const Kops__V1__Submit *submit, const uint8_t *message, size_t bytes,
                 struct prepared **ret_prepared, char why[WHY_BYTES]);

/* Why there is no room for more of this user's. */
void prepared_explain(const struct engine *engine, const struct account *account, char why[WHY_BYTES]);

/* Forgets it; its job ends as if it had not been prepared. */
void prepared_forget(struct prepared *prepared);

/* As above, of one that is out of its session's map. */
void prepared_free(struct prepared *prepared);

/* The planned job becomes its job, and READY again at each end. False: there is no room for it. */
bool prepared_take(struct prepared *prepared, struct job *job);

/* Its job, where that can run as it is: READY, by a plan that holds; marked as used. NULL: make it from the
 * message.
 */
struct job *prepared_ready_job(struct prepared *prepared);

/* From READY to KEPT; of one that is out, when it ends. */
void prepared_cool(struct prepared *prepared);

/* The buffer is dropped: takes over its session's reference, and gives it up when no prepared job has the
 * buffer any more. No run starts with it meanwhile. */
void prepared_drop_buffer(struct buffer *buffer);

/* A job that belongs to one has ended and was answered. */
void prepared_job_ended(struct job *job);

#endif
