/*
 * client.h: what the files of libkops share; the public side is kops.h. In reading order:
 *
 *   handle.c   open, close, errors         job.c      a job made, one Submit out, its end
 *   fd.c       descriptors that are kept   ops.c      its ops
 *   view.c     views                       repeat.c   which jobs may run twice
 *   buffer.c   alloc, import, free         receipt.c  the answer, kept
 *   wire.c     outbox, replies, waiting    blas.c     one-op calls
 *   link.c     connect, greet, again       query.c    ping, devices, statistics
 *   ring.c     runs without system calls   list.c     users, sessions, the latest jobs
 *
 * Everything here is hidden from users of the library, so the prefix client_ only guards against the
 * names of other kops code in one test program.
 */
#ifndef KOPS_CLIENT_H
#define KOPS_CLIENT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kops.h"
#include "message.h"
#include "ring_memory.h"

#define CLIENT_WHY_BYTES    512
#define CLIENT_NAME_BYTES   64
#define CLIENT_VERSION      1 /* of the protocol */
#define CLIENT_DEATHS_MAX   3 /* of the daemon in a row, after which what was out at each is not sent again */
#define CLIENT_NEVER        INT64_MAX
#define CLIENT_BLOCK_US     1000000 /* SO_RCVTIMEO of the socket */
#define CLIENT_PREFIX_BYTES 16      /* room for the start of a Request: id, tag and length of its Submit */
#define CLIENT_TAIL_BYTES   16      /* and for the last fields of that: prepare, only_prepare */
#define CLIENT_ONE_OPS      8       /* jobs of one-op calls that are kept for calls with the same arguments */

/* What to say when there are none left. */
#define CLIENT_NO_FDS "this process is out of file descriptors; close some, or raise its limit (ulimit -n)"

/* ---- Lists ---- */

/* An intrusive ring; an unlinked node is its own ring. */
struct links {
	struct links *prev, *next;
};

#define LINKS_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void links_init(struct links *list)
{
	list->prev = list->next = list;
}

static inline bool links_is_empty(const struct links *list)
{
	return list->next == list;
}

static inline void links_append(struct links *list, struct links *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

static inline void links_remove(struct links *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	links_init(node);
}

static inline int64_t client_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- fd.c ---- */

/*
 * A descriptor that is kept while the program runs code of its own. That code may close the number, or put
 * another file in its place (closefrom(), dup2(), a child of fork() that daemonizes). So before a kept number
 * is used after a return to the caller, or after a sleep, in which other threads run, it is compared with what
 * it was. Every kept number is above those of standard input, output and error, which may be closed.
 */
struct descriptor {
	int number; /* -1: none */
	dev_t device;
	ino_t inode;
};

/* Takes over the number, or a duplicate of it; moves it above the standard ones. -1 with errno: it is closed.
 */
int client_fd_keep(struct descriptor *ret, int number);
int client_fd_duplicate(struct descriptor *ret, int number);

/* For one that is not kept: the number, or one above the standard ones in its place; -1 with errno. */
int client_fd_raise(int number);

/* Whether the number still is what it was. */
bool client_fd_is_ours(const struct descriptor *d);

/* Closes it, unless something else has the number by now; *d is none afterwards. */
void client_fd_close(struct descriptor *d);

/* ---- The handle ---- */

/*
 * The connection.
 *
 *   DOWN ──connect──▶ GREETING ──Welcome──▶ UP
 *    ▲                   │                  │
 *    └── all read ── BROKEN ◀── peer gone ──┘
 *
 * GREETING has sent Hello and, without waiting, all that was unanswered. BROKEN reads what the daemon
 * had answered before it went. From every state to DOWN when the handle gives up.
 */
enum link_state { LINK_DOWN, LINK_GREETING, LINK_UP, LINK_BROKEN };

/*
 * Someone waits for an answer: a job's, a buffer's or a call's. `reply` is there when done is set by a reply,
 * and lives until the next datagram is read.
 */
struct waiter {
	bool done;
	int64_t look_from_us, look_until_us; /* not to be asleep then, if nothing comes before; 0, 0: never */
	int status;
	const Kops__V1__Reply *reply;
	char why[CLIENT_WHY_BYTES];
};

/* A Ping, Describe, Stats or a page of a list; at most one at a time, on the stack of who waits for it. */
struct call {
	struct waiter waiter;
	Kops__V1__Request__BodyCase verb;
	uint64_t before; /* of a page */
	uint64_t id;     /* of the request; 0: to be sent */
};

struct packet; /* wire.c: a datagram that the socket did not take yet */

struct kops {
	uint32_t timeout_ms, spin_us;
	int64_t sleep_until_us; /* no looking for answers before: other threads want the CPU */
	int64_t crowded_us;     /* how long that lasts */
	int64_t given_way_us;   /* when another thread took the CPU last */
	unsigned moves_left;    /* to other CPUs, until it had its own for a while */
	long switches;          /* to other threads, by then: see wire.c */
	bool may_look;          /* there are CPUs for it: around the usual end of a long job, struct waiter */
	pid_t owner;            /* the process that opened it */
	const bool
	    *own; /* a page that the kernel zeroes in a child of fork(): true in the owner; may be NULL */

	enum link_state state;
	struct descriptor sock; /* none when DOWN, and when BROKEN because its number is ours no more */
	bool sock_is_known;     /* to be ours: neither slept nor returned to the caller since that was seen */
	bool closed_here;       /* that is how the last connection was lost */
	int watched;            /* what kops_fd() said last */
	int64_t give_up_us;     /* end of trying to connect; CLIENT_NEVER: not trying, or connected */
	int64_t attempt_us;     /* when DOWN and trying: the next attempt */
	unsigned attempts;      /* to connect since trying began */
	int64_t pause_us;       /* between attempts; grows until an answer comes */
	bool draining;          /* the daemon said SHUTDOWN: send nothing more on this connection */
	uint64_t hello;         /* id of the Hello */
	int lost_status;        /* why the handle gave up; for kops_process() */
	uint64_t ops_max;       /* from Welcome */
	bool prepares;          /* knows prepared jobs */
	bool lists;             /* knows lists of users, sessions and jobs */
	uint64_t last_prepared; /* number of one */

	uint32_t ring_limit;      /* of entries; 0: the daemon has no rings */
	uint64_t ring_request;    /* id of the OpenRing; 0: not asked for */
	bool ring_awaited;        /* it is unanswered: the reply may bring a descriptor */
	struct ring_memory *ring; /* NULL: none */
	uint32_t ring_entries, ring_put, ring_taken;
	unsigned jobs_out, by_ring; /* how many are, and of these by the ring */

	uint64_t sequence; /* of the last request id */
	struct packet *outbox, **outbox_end;
	struct waiter *greeting; /* kops_open(); else NULL */
	struct call *call;
	struct links buffers;     /* kops_buffer.node */
	unsigned buffer_requests; /* unanswered: replies may bring descriptors */
	bool fds_lost;            /* the reply just read came with some, but we had no room for them */
	struct links jobs;        /* kops_job.node */
	struct links out;         /* kops_job.out: unanswered, in order of submission */
	unsigned ended;           /* jobs and started buffers, ever */
	bool in_callback;
	uint64_t last_buffer;
	kops_job *one_op;                  /* blas.c makes its jobs in this one */
	kops_job *one_ops[CLIENT_ONE_OPS]; /* those of late, which may come again; NULL: free places */
	unsigned one_ops_next;             /* to be replaced */

	/* Behind what every run needs. */
	struct sockaddr_un address;
	char name[CLIENT_NAME_BYTES + 1];
	char daemon[CLIENT_NAME_BYTES + 1]; /* from Welcome */
	char why[CLIENT_WHY_BYTES];         /* why the last attempt or connection failed; part of a sentence */
	char error[CLIENT_WHY_BYTES];
	uint8_t data[MESSAGE_BYTES_MAX]; /* a datagram in the making or just read */
	struct message_arena arena;      /* the reply just read */
};

/* Sets kops_error() and returns code. */
int client_fail(kops *k, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * Whether this is the copy of a handle in a child of fork(). It shares the parent's socket, so it must neither
 * send nor receive. One load a call: MADV_WIPEONFORK, unlike getpid(), is no system call; unlike
 * pthread_atfork() it needs no list of all handles, and it also sees clone() and _Fork(). A child of vfork()
 * shares the parent's memory and changes nothing. Without that advice (Linux before 4.14) pids are compared.
 */
static inline bool client_is_copy(const kops *k)
{
	return k->own ? !*k->own : getpid() != k->owner;
}

/* KOPS_E_STATE with its sentence in a child of fork(): all that changes a handle begins with this. */
int client_may_use(kops *k);

/* The same, and when a callback runs: waiting functions begin with this. */
int client_may_wait(kops *k);

/* Whether text may go into a message as a device's or kernel's name: at most 64 printable ASCII characters. */
bool client_name_is_valid(const char *text);

/* ---- wire.c: requests out, replies in ---- */

/* What a request id is for; it is kept in its low bits. */
enum client_kind { CLIENT_JOB, CLIENT_BUFFER, CLIENT_CALL, CLIENT_SILENT };
#define CLIENT_KIND_BITS 2

uint64_t client_new_id(kops *k, enum client_kind kind);

/* Whether requests may go out now; what cannot waits for the next connection. */
bool client_can_send(const kops *k);

/*
 * Sends a datagram, or keeps a copy until the socket takes it; fd, which may be NULL, stays where it is until
 * the request is answered. job may be NULL; its `sent` is set when it has gone out. A peer that is gone makes
 * the link BROKEN, which is no failure here. KOPS_E_NOMEM, KOPS_E_SYSTEM.
 */
int client_send(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job);

/* Packs into k->data and sends. */
int client_send_request(kops *k, const Kops__V1__Request *request, const struct descriptor *fd);

/* A request whose answer does not matter: Drop, Cancel. Nothing when there is no connection. */
void client_send_silent(kops *k, Kops__V1__Request *request);

void client_outbox_clear(kops *k);

/* The daemon broke the protocol: the handle gives up, with the phrase. */
void client_violation(kops *k, const char *phrase);

/* Sends k->call, if there is one that can go out on this connection as far as that is known. */
int client_call_send(kops *k);

/* Waits for the answer to the call, whose verb and before are set, until until_us: its waiter has the reply. */
int client_ask(kops *k, struct call *call, int64_t until_us);

/* kops_ping() until until_us. */
int client_ping(kops *k, int64_t until_us);

/*
 * Runs the connection until waiter->done: its status, with kops_error() set when negative. KOPS_E_TIMEOUT after
 * timeout_us (CLIENT_NEVER: no limit), with a sentence for calls that have the handle's timeout; the waiter
 * must then be taken back.
 */
int client_await(kops *k, const struct waiter *waiter, int64_t timeout_us);

/* The handle's timeout, and when it is over for a call that begins now. */
int64_t client_timeout_us(const kops *k);
int64_t client_until_us(const kops *k);

/* A timeout of a public call, in us. */
int64_t client_us_of(int timeout_ms);

/* Ends a waiter; NULL is allowed. why may be NULL for success. */
void client_waiter_end(struct waiter *waiter, int status, const char *why, const Kops__V1__Reply *reply);

/* ---- link.c ---- */

/*
 * One attempt: connects, says Hello and sends all that is unanswered. Where connections queue it blocks for
 * some time, until until_us at most; 0: not at all. KOPS_E_BUSY when trying again soon may help,
 * KOPS_E_CONNECT, _NOMEM, _SYSTEM; k->why has the sentence.
 */
int client_link_connect(kops *k, int64_t until_us);

/* The daemon does not answer any more. Replies that came before are still to be read. */
void client_link_broken(kops *k);

/* Whether the socket may be used. Where its number is ours no more the link is BROKEN, without it. */
bool client_link_has_socket(kops *k);

/* Something has to be sent: start connecting if nobody does. */
void client_link_want(kops *k);

/* Timers: connects when it is time, until_us as client_link_connect() has it; gives up when it is too late.
 * False when it was time for nothing. */
bool client_link_tick(kops *k, int64_t now_us, int64_t until_us);

/* When client_link_tick() has something to do; CLIENT_NEVER. */
int64_t client_link_next_us(const kops *k);

/* The connection is over and all that it said has been read: DOWN, and trying again if anything is unanswered.
 */
void client_link_down(kops *k);

/* DOWN, and everything unanswered ends with status. */
void client_link_give_up(kops *k, int status, const char *why);

/* The reply to Hello. */
void client_link_answered(kops *k, const Kops__V1__Reply *reply);

/* Closes the socket. The session ends even if a child of fork() has it too, but not by such a child. */
void client_link_hang_up(kops *k);

/* A request was answered with SHUTDOWN: it did not run, and is sent again on the next connection. */
void client_link_drain(kops *k);

/* ---- buffer.c ---- */

/*
 *   ASKED ──reply──▶ READY            ASKED: the first Alloc or Import is unanswered, or still to be sent
 *     └──reply, or the link gave up──▶ FAILED
 *
 * Jobs may name a buffer before it is READY: the daemon has them wait for it. One that its user frees lives on
 * until it is answered and the jobs that use it have ended.
 */
enum buffer_state { BUFFER_ASKED, BUFFER_READY, BUFFER_FAILED };

struct kops_buffer {
	kops *k;
	struct links node;
	enum buffer_state state;
	uint64_t id, bytes;
	unsigned flags;
	bool freed;            /* by the user */
	uint64_t request;      /* id of the unanswered Import or Alloc; 0: none */
	struct waiter *waiter; /* until it is READY or FAILED */
	struct waiter *idle;   /* until no job that names it is out */
	kops_buffer_callback *done;
	void *user;
	unsigned deaths;       /* of the daemon in a row at which it was ASKED */
	unsigned operands;     /* of jobs that name it */
	unsigned operands_out; /* of jobs that are out */
	struct descriptor fd;  /* its memfd, kept to give it again; none when RESIDENT */
	bool replaceable;      /* nobody else here has the memfd: it was lent, or is KOPS_GIVEN */
	bool fd_is_lost;       /* its number is ours no more, or the memory is to be replaced */
	void *data;
	bool is_private;                    /* data is a copy, by kops_python_keep_private() */
	char device[CLIENT_NAME_BYTES + 1]; /* asked for, then where it lives */
	int status;                         /* FAILED, or why the daemon did not take it back after a restart */
	char why[CLIENT_WHY_BYTES];
};

/* A reply to Import or Alloc. fds: those that came with it; taken ones are set to -1. Phrase on a protocol
 * violation. */
const char *client_buffer_answered(kops *k, const Kops__V1__Reply *reply, int *fds, unsigned n_fds);

/* The connection is gone, by the daemon's death or not: nothing was asked. */
void client_buffer_forget_requests(kops *k, bool died);

/*
 * The connection is lost, though the daemon lives. It may still write what jobs that are out had as outputs:
 * the buffers that they name get other memory, where nobody else here shares it.
 */
void client_buffer_distrust(kops *k);

/* Those that were ASKED at CLIENT_DEATHS_MAX deaths in a row fail. */
void client_buffer_end_doomed(kops *k);

/* Gives every buffer that is still needed to the new connection. */
int client_buffer_restore(kops *k);

/* Drops those that were freed meanwhile; after the jobs that use them were sent. */
void client_buffer_drop_freed(kops *k);

/* Whether one is ASKED and wanted. */
bool client_buffer_is_awaited(const kops *k);

/* Whether it was asked for on this connection. */
bool client_buffer_is_in_flight(const kops *k);

/* All that are ASKED fail. */
void client_buffer_fail(kops *k, int status, const char *why);

/* Frees the struct, or what it holds, when nothing needs it any more. */
void client_buffer_settle(kops_buffer *b);

/* A job that names it is out no more. */
void client_buffer_release(kops_buffer *b);

/* Unmaps, closes, frees whatever its state. */
void client_buffer_destroy(kops_buffer *b);

/* ---- job.c ---- */

/* One view of one op, as far as running twice is concerned. */
struct operand {
	kops_view view;
	uint64_t lo, hi; /* bytes of the buffer that it may touch */
	bool dense;      /* it covers all of them */
	bool written;    /* else read; an output that is also read is there twice */
	uint32_t op;
};

/*
 *   NEW ──submit──▶ OUT ──reply, or the link gave up──▶ ENDED ──submit──▶ OUT
 *
 * NEW takes ops. An OUT job that its user frees stays, abandoned, until it ends: others may need its result.
 */
enum job_phase { PHASE_NEW, PHASE_OUT, PHASE_ENDED };

struct kops_job {
	kops *k;
	struct links node;
	struct links out;
	enum job_phase phase;
	uint64_t id;     /* of its Submit */
	bool sent;       /* on this connection, */
	bool by_ring;    /* by the ring */
	bool repeatable; /* repeat.c, when the connection is lost */
	bool cancelled;  /* kops_cancel() was called */
	int doom;        /* ends with this status instead of being sent again; 0: none */
	bool abandoned;
	unsigned deaths; /* of the daemon in a row that it was out at */
	uint32_t queue;
	struct waiter *waiter;
	kops_callback *done;
	void *user;

	double usual_us; /* how long the daemon had it the last time; 0: unknown, or its device not for long */
	int64_t due_us;  /* when it should end; 0: as above */

	unsigned submissions; /* with these ops */
	uint64_t number;      /* under which it is to be prepared; 0: not yet */
	bool prepared;        /* on this connection: sent by its number */
	bool only_prepare;    /* by kops_job_prepare() */

	uint8_t *bytes; /* CLIENT_PREFIX_BYTES, the Submit without its ops, the ops, CLIENT_TAIL_BYTES */
	size_t options_end, bytes_len, bytes_cap;
	size_t start; /* of the Request, within the prefix */
	uint32_t n_ops;
	struct operand *operands;
	size_t n_operands, operands_cap;

	int status;
	uint64_t retry_after_us;
	bool has_receipt;
	struct receipt *receipt; /* and all that it points to: one block */
	size_t receipt_cap;
	char error[CLIENT_WHY_BYTES];
};

/* Forgets its ops, for use with others. Not while OUT. */
void client_job_reset(kops_job *job);

/* Sends an OUT job on the current connection: by its number where it is prepared, else whole. */
int client_job_send(kops_job *job);

/* The connection is gone, and with it all that was prepared. */
void client_job_unprepare(kops *k);

/* Forgets it in the daemon too. */
void client_job_forget_prepared(kops_job *job);

/* An end in the ring. Phrase on a protocol violation. */
const char *client_job_ended_by_ring(kops *k, const struct ring_end *end);

/* Whether two jobs have the same options and ops. */
bool client_job_is_same(const kops_job *a, const kops_job *b);

/* A reply to a Submit. Phrase on a protocol violation. */
const char *client_job_answered(kops *k, const Kops__V1__Reply *reply);

/* Out of the list, to ENDED; runs the callback. why may be NULL. The job may be gone afterwards. */
void client_job_end(kops_job *job, int status, const char *why, const Kops__V1__Reply *reply);

/* Whether an unanswered job went out on this connection. */
bool client_job_is_in_flight(const kops *k);

/* The daemon refused the connection: the jobs sent with Hello did not run. */
void client_job_refused(kops *k);

/* The connection is gone, by the daemon's death or not: chooses which jobs are sent again and dooms the others.
 */
void client_job_unsend(kops *k, bool died);

/* Ends the doomed ones. */
void client_job_end_doomed(kops *k);

/* All jobs that are out now end with status. */
void client_job_fail(kops *k, int status, const char *why);

/* Frees whatever its state, without a callback. */
void client_job_destroy(kops_job *job);

/* ---- ops.c ---- */

/* Room for so many bytes more of its Submit. KOPS_E_NOMEM. */
int client_job_reserve(kops_job *job, size_t n);

#define CLIENT_OWN_MESSAGE_BYTES 128  /* room for an op's own message, of whichever type */
#define CLIENT_OP_BYTES_MAX      2048 /* packed: eight views of 120 bytes, the attributes, a kernel's name */

/*
 * Adds an op: views[] and values[] are its operands and attributes in the order of its description, values as
 * in kops_attribute. The views of absent operands have no buffer.
 */
struct op;
int client_add_op(kops_job *job, const struct op *op, const kops_view *views, const double *values,
                  const char *kernel);

/* ---- blas.c ---- */

/* Around the adding of the one op: *ret_job is the one to add it to; status is what adding it returned. */
int client_one_op_begin(kops *k, kops_job **ret_job);
int client_one_op_finish(kops *k, int status);

/* ---- ring.c ---- */

/* A job was prepared: opens the ring if that was not tried yet. Does not wait. */
void client_ring_want(kops *k);

/* The reply to that. Phrase on a protocol violation. */
const char *client_ring_answered(kops *k, const Kops__V1__Reply *reply, const int *fds, unsigned n_fds);

/* With the connection. */
void client_ring_close(kops *k);

/* Sends the run of a prepared job. False: it has to go by the socket. */
bool client_ring_send(kops_job *job);

/* Ends the jobs whose ends are there. False when none was. */
bool client_ring_take(kops *k);

/* From here on the daemon sends a datagram for what it puts in. False: something is there already. */
bool client_ring_lets_sleep(const kops *k);

/* To be asked before sleeping on the socket; to be called afterwards. False: jobs have ended. */
bool client_ring_may_sleep(kops *k);
void client_ring_woke_up(kops *k);

/* Looks for ends for a short while. True: jobs have ended. */
bool client_ring_spin(kops *k);

/* ---- repeat.c, view.c, receipt.c ---- */

/* Sets `repeatable` of every job that is out, as if the daemon had run any part of those that were sent. */
void client_repeat_decide(kops *k);

/* Fills lo, hi and dense from the view; all bytes where it overflows (the daemon will refuse it). */
void client_view_extent(struct operand *operand);

/* The wire form; points into *view. Strides are left out where they are the dense ones. */
void client_view_encode(const kops_view *view, Kops__V1__View *ret_wire);

/* The members of a message that tell an op's size. A newer daemon's further extents are left out. */
kops_op_shape client_op_shape(Kops__V1__DType dtype, size_t n, const uint64_t *extents);

/* Makes room for the receipt of a job that is to be submitted: each that succeeds has one. KOPS_E_NOMEM. */
int client_receipt_reserve(kops_job *job);

/* Copies a receipt into job->receipt, which grows as needed. Without memory for that, texts are left out. */
void client_receipt_keep(kops_job *job, const Kops__V1__Receipt *receipt);

#endif
