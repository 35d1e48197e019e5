/*
 * state.h: a handle, a buffer and a job, in parts that each belong to one layer. Calls go down this list, never
 * up; tests/source/layers checks that.
 *
 *   api/      what programs call: handle (open, close), blocking (the calls that block), and others
 *   session/  await (sleeps and polls, event loops), session (Hello, replies, restarts)
 *   job/      job (one Submit, its end), ops, repeat (which jobs may run twice), receipt, buffer
 *   wire/     ring (runs without system calls), wire (outbox, datagrams), link (the socket)
 *   base/     view, fd (descriptors that are kept), base (errors, times)
 *
 * Users of the library see nothing of this. The prefix client_ avoids names of other kops code in test
 * programs.
 */
#ifndef KOPS_CLIENT_STATE_H
#define KOPS_CLIENT_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "kops.h"
#include "message.h"
#include "ring_memory.h"

#define CLIENT_WHY_BYTES    512
#define CLIENT_NAME_BYTES   64
#define CLIENT_VERSION      1 /* protocol version */
#define CLIENT_DEATHS_MAX   3 /* deaths of the daemon in a row after which a request is not sent again */
#define CLIENT_NEVER        INT64_MAX
#define CLIENT_BLOCK_US     1000000 /* SO_RCVTIMEO of the socket */
#define CLIENT_PREFIX_BYTES 16      /* room for the start of a Request: id, tag and length of its Submit */
#define CLIENT_TAIL_BYTES   16      /* room for the last fields of a Submit: prepare, only_prepare */
#define CLIENT_ONE_OPS      8       /* jobs of one-op calls that are kept for calls with the same arguments */

#define CLIENT_NO_NAMES "this kopsd is too old for published buffers; update it"
#define CLIENT_NO_FDS   "this process is out of file descriptors; close some, or raise its limit (ulimit -n)"

/* ---- Lists ---- */

/* A circular intrusive list; an unlinked node is a list of its own. */
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

/* ---- Small parts ---- */

/*
 * A descriptor that is kept while the program runs code of its own. That code may close the number, or put
 * another file in its place (closefrom(), dup2(), a child of fork() that daemonizes). So a kept number is
 * compared with the file it was before it is used, whenever the library slept or returned since. Kept numbers
 * are above those of standard input, output and error, which may be closed.
 */
struct descriptor {
	int number; /* -1: none */
	dev_t device;
	ino_t inode;
};

/*
 * A wait for the answer to a job, buffer or call. `reply` is set if a reply set done; it is valid until the
 * next datagram is read.
 */
struct waiter {
	bool done;
	int64_t look_from_us, look_until_us; /* poll in this time, if no answer came before; 0, 0: never */
	int status;
	const Kops__V1__Reply *reply;
	char why[CLIENT_WHY_BYTES];
};

/* A Ping, Describe, Stats, a page of a list, Publish or Unpublish; one at a time, on the caller's stack. */
struct call {
	struct waiter waiter;
	Kops__V1__Request__BodyCase verb;
	uint64_t before;            /* where a page ends */
	Kops__V1__Request *request; /* Publish and Unpublish: all but the id; else NULL */
	uint64_t id;                /* request id; 0: not sent yet */
};

struct packet; /* wire.c: a datagram that the socket has not taken yet */

/* ---- The parts of a handle ---- */

/*
 * link.c: the connection.
 *
 *   DOWN ──connect──▶ GREETING ──Welcome──▶ UP
 *    ▲                   │                  │
 *    └── all read ── BROKEN ◀── peer gone ──┘
 *
 * GREETING has sent Hello and, without waiting, all that was unanswered. BROKEN still reads what the daemon
 * answered before it went. Every state changes to DOWN when the handle gives up.
 */
enum link_state { LINK_DOWN, LINK_GREETING, LINK_UP, LINK_BROKEN };

struct link {
	enum link_state state;
	struct descriptor sock; /* none when DOWN, and when BROKEN because the number is another file */
	bool sock_is_known;     /* sock was checked, and the library has neither slept nor returned since */
	bool closed_here;       /* this program closed the last connection */
	int watched;            /* the last result of kops_fd() */
	int64_t give_up_us;     /* when to stop trying to connect; CLIENT_NEVER: not trying, or connected */
	int64_t attempt_us;     /* when DOWN and trying: the next attempt */
	unsigned attempts;      /* to connect, since trying began */
	int64_t pause_us;       /* between attempts; grows until an answer comes */
	bool draining;          /* the daemon said SHUTDOWN: send nothing more on this connection */
	struct sockaddr_un address;
	char why[CLIENT_WHY_BYTES]; /* why the last attempt or connection failed; part of a sentence */
};

/* wire.c */
struct wire {
	uint64_t sequence;                   /* number of the last request id */
	struct packet *outbox, **outbox_end; /* empty unless the link is UP or GREETING, or just broke */
	bool fds_lost;                       /* there was no room for the descriptors of the last reply */
	uint8_t data[MESSAGE_BYTES_MAX];     /* a datagram being written or just read */
	struct message_arena arena;          /* the reply just read */
};

/* ring.c */
struct ring {
	uint32_t limit;             /* largest number of entries; 0: the daemon has no rings */
	uint64_t request;           /* id of the OpenRing; 0: not sent */
	bool awaited;               /* the OpenRing is unanswered; the reply may bring a descriptor */
	struct ring_memory *memory; /* NULL: none */
	uint32_t entries, put, taken;
	unsigned runs; /* jobs in flight by the ring */
};

/* buffer.c */
struct buffers {
	struct links list;  /* kops_buffer.node */
	unsigned requests;  /* unanswered Imports, Allocs and Attaches; replies may bring descriptors */
	unsigned publishes; /* unanswered Publishes after a reconnect */
	bool any_detached;  /* the daemon did not attach some buffer again since it restarted */
	uint64_t last;      /* the last buffer id */
};

/* job.c */
struct jobs {
	struct links all; /* kops_job.node */
	struct links out; /* kops_job.out: unanswered, in order of submission */
	unsigned n_out;
	uint64_t last_prepared; /* the last number of a prepared job */
	uint64_t ops_max;       /* from Welcome */
	bool instances;         /* the daemon knows ops by names; true until a Welcome says otherwise */
	bool prepares;          /* the daemon knows prepared jobs */
};

/* session.c */
struct session {
	uint64_t hello;          /* id of the unanswered Hello; 0: none */
	int lost_status;         /* why the handle gave up, for kops_process() */
	bool lists;              /* the daemon knows lists of users, sessions and jobs */
	bool names;              /* and published buffers; as of the last Welcome */
	struct waiter *greeting; /* kops_open(); else NULL */
	struct call *call;
	char name[CLIENT_NAME_BYTES + 1];
	char daemon[CLIENT_NAME_BYTES + 1]; /* from Welcome */
};

/* await.c: whether this thread polls or sleeps. */
struct looks {
	int64_t sleep_until_us; /* do not poll before: other threads need the CPU */
	int64_t crowded_us;     /* how long polling is suspended */
	int64_t given_way_us;   /* when another thread last took the CPU */
	unsigned moves_left;    /* to other CPUs, until this thread has kept its CPU for a while */
	long switches;          /* involuntary context switches of this thread at the last check */
	bool may_look;          /* enough CPUs to poll around the usual end of a long job: see struct waiter */
};

struct kops {
	uint32_t timeout_ms, spin_us;
	pid_t owner; /* the process that opened it */
	const bool
	    *own; /* a page that the kernel zeroes in a child of fork(): true in the owner; may be NULL */
	bool in_callback;
	unsigned ended; /* jobs that ended and buffers that were made or failed, ever */

	struct link link;
	struct ring ring;
	struct buffers buffers;
	struct jobs jobs;
	struct session session;
	struct looks looks;

	/* one_op.c */
	kops_job *one_op;                  /* the job that a one-op call builds */
	kops_job *one_ops[CLIENT_ONE_OPS]; /* recent ones, for calls with the same arguments; NULL: free */
	unsigned one_ops_next;             /* the place to be replaced next */

	/* Last, since these are large. */
	char error[CLIENT_WHY_BYTES];
	struct wire wire;
};

/* ---- Buffers ---- */

/* The published buffer that a buffer is attached to. */
struct attaching {
	uint32_t uid;
	kops_dtype dtype; /* as its publisher told */
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	char name[];
};

/* How a buffer is published. */
struct publishing {
	kops_publish_options options;
	char name[];
};

/*
 *   ASKED ──reply──▶ READY            ASKED: the first Alloc or Import is unanswered, or still to be sent
 *     └──reply, or the link gave up──▶ FAILED
 *
 * Jobs may name a buffer before it is READY: the daemon lets them wait for it. A freed buffer lives on until it
 * is answered and the jobs that use it have ended.
 */
enum buffer_state { BUFFER_ASKED, BUFFER_READY, BUFFER_FAILED };

struct kops_buffer {
	kops *k;
	struct links node;
	enum buffer_state state;
	uint64_t id, bytes;
	unsigned flags;
	bool freed;            /* by the program */
	uint64_t request;      /* id of the unanswered Import or Alloc; 0: none */
	struct waiter *waiter; /* waits until the buffer is READY or FAILED */
	struct waiter *idle;   /* waits until no job that names the buffer is in flight */
	kops_buffer_callback *done;
	void *user;
	unsigned deaths;       /* deaths of the daemon in a row at which it was ASKED */
	unsigned operands;     /* uses by operands of jobs */
	unsigned operands_out; /* uses by operands of jobs in flight */
	struct descriptor fd;  /* its memfd, kept to be given again; none when RESIDENT */
	bool replaceable;      /* nobody else here has the memfd: it was lent, or is KOPS_GIVEN */
	bool fd_is_lost;       /* the number is another file, or the memory is to be replaced */
	void *data;
	struct attaching *attached;         /* what it is attached to; NULL: it is this handle's own */
	struct publishing *published;       /* how it is published; NULL: it is not */
	uint64_t publish_request;           /* id of the unanswered Publish after a reconnect; 0: none */
	bool is_private;                    /* data is a copy made by kops_python_keep_private() */
	char device[CLIENT_NAME_BYTES + 1]; /* the device asked for, then where the buffer lives */
	int status; /* why it FAILED, or why the daemon did not take it back after a restart */
	char why[CLIENT_WHY_BYTES];
};

/* ---- Jobs ---- */

/* One view of one op, as repeat.c sees it. */
struct operand {
	kops_view view;
	uint64_t lo, hi; /* range of bytes of the buffer that it may touch */
	bool dense;      /* it covers the whole range */
	bool written;    /* else read; an output that is also read has two entries */
	uint32_t op;
};

/*
 *   NEW ──submit──▶ OUT ──reply, or the link gave up──▶ ENDED ──submit──▶ OUT
 *
 * NEW takes ops. An OUT job that the program frees stays, abandoned, until it ends: other jobs may need its
 * result.
 */
enum job_phase { PHASE_NEW, PHASE_OUT, PHASE_ENDED };

struct kops_job {
	kops *k;
	struct links node;
	struct links out;
	enum job_phase phase;
	uint64_t id;     /* request id of its Submit */
	bool sent;       /* on this connection */
	bool by_ring;    /* sent by the ring */
	bool repeatable; /* set by repeat.c when the connection is lost */
	bool cancelled;  /* kops_cancel() was called */
	int doom;        /* the status to end with instead of being sent again; 0: none */
	bool abandoned;
	unsigned deaths; /* deaths of the daemon in a row at which it was in flight */
	uint32_t queue;
	struct waiter *waiter;
	kops_callback *done;
	void *user;

	double usual_us; /* how long the daemon had it last time; 0: unknown, or its device had it briefly */
	int64_t due_us;  /* when it should end; 0: unknown */

	unsigned submissions; /* with these ops */
	uint64_t number;      /* the number to prepare it under; 0: none yet */
	bool prepared;        /* on this connection, so it is sent by its number */
	bool only_prepare;    /* submitted by kops_job_prepare() */

	uint8_t *bytes; /* CLIENT_PREFIX_BYTES, the Submit without its ops, the ops, CLIENT_TAIL_BYTES */
	size_t options_end, bytes_len, bytes_cap;
	size_t start; /* where the Request begins within the prefix */
	uint32_t n_ops;
	struct operand *operands;
	size_t n_operands, operands_cap;

	int status;
	uint64_t retry_after_us;
	bool has_receipt;
	struct receipt *receipt; /* one block with all that it points to */
	size_t receipt_cap;
	char error[CLIENT_WHY_BYTES];
};

/*
 * Returns true for the copy of a handle in a child of fork(). It shares the parent's socket, so it must neither
 * send nor receive. The check is one load: MADV_WIPEONFORK, unlike getpid(), needs no system call. Unlike
 * pthread_atfork() it needs no list of handles, and it also works with clone() and _Fork(). A child of vfork()
 * shares the parent's memory and changes nothing. Without MADV_WIPEONFORK (Linux before 4.14) pids are
 * compared.
 */
static inline bool client_is_copy(const kops *k)
{
	return k->own ? !*k->own : getpid() != k->owner;
}

#endif
