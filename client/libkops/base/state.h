/*
 * state.h: a handle, a buffer and a job, in parts that each belong to one layer. Calls go down this list, and
 * never up; tests/source/layers checks that.
 *
 *   api/      what programs call: handle (open, close), blocking (the calls that block), and others
 *   session/  await (sleeps and polls, event loops), session (Hello, replies, restarts)
 *   job/      job (one Submit, its end), ops, repeat (which jobs may run twice), receipt, buffer
 *   wire/     ring (runs without system calls), wire (outbox, datagrams), link (the socket)
 *   base/     view, fd (descriptors that are kept), base (errors, times)
 *
 * Everything here is hidden from users of the library. The prefix client_ avoids names of other kops code in a
 * test program.
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
#define CLIENT_VERSION      1 /* of the protocol */
#define CLIENT_DEATHS_MAX   3 /* deaths of the daemon in a row after which a request is not sent again */
#define CLIENT_NEVER        INT64_MAX
#define CLIENT_BLOCK_US     1000000 /* SO_RCVTIMEO of the socket */
#define CLIENT_PREFIX_BYTES 16      /* room for the start of a Request: id, tag and length of its Submit */
#define CLIENT_TAIL_BYTES   16      /* room for the last fields of a Submit: prepare, only_prepare */
#define CLIENT_ONE_OPS      8       /* jobs of one-op calls that are kept for calls with the same arguments */

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

/* ---- Small parts ---- */

/*
 * A descriptor that is kept while the program runs code of its own. That code may close the number, or put
 * another file in its place (closefrom(), dup2(), a child of fork() that daemonizes). So a kept number is
 * compared with the file it was before it is used after a return to the caller, or after a sleep. Kept numbers
 * are above those of standard input, output and error, which may be closed.
 */
struct descriptor {
	int number; /* -1: none */
	dev_t device;
	ino_t inode;
};

/*
 * Someone waits for an answer: to a job, a buffer or a call. `reply` is set if a reply set done, and lives
 * until the next datagram is read.
 */
struct waiter {
	bool done;
	int64_t look_from_us, look_until_us; /* poll in this time, if no answer came before; 0, 0: never */
	int status;
	const Kops__V1__Reply *reply;
	char why[CLIENT_WHY_BYTES];
};

/* A Ping, Describe, Stats or a page of a list; at most one at a time, on the stack of the caller. */
struct call {
	struct waiter waiter;
	Kops__V1__Request__BodyCase verb;
	uint64_t before; /* of a page */
	uint64_t id;     /* of the request; 0: to be sent */
};

struct packet; /* wire.c: a datagram that the socket did not take yet */

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
	struct descriptor sock; /* none when DOWN, and when BROKEN because its number is not ours any more */
	bool sock_is_known; /* to be ours: neither slept nor returned to the caller since that was checked */
	bool closed_here;   /* this program closed the last connection */
	int watched;        /* the last result of kops_fd() */
	int64_t give_up_us; /* end of trying to connect; CLIENT_NEVER: not trying, or connected */
	int64_t attempt_us; /* when DOWN and trying: the next attempt */
	unsigned attempts;  /* to connect since trying began */
	int64_t pause_us;   /* between attempts; grows until an answer comes */
	bool draining;      /* the daemon said SHUTDOWN: send nothing more on this connection */
	struct sockaddr_un address;
	char why[CLIENT_WHY_BYTES]; /* why the last attempt or connection failed; part of a sentence */
};

/* wire.c */
struct wire {
	uint64_t sequence;                   /* of the last request id */
	struct packet *outbox, **outbox_end; /* empty unless the link is UP or GREETING, or just broke */
	bool fds_lost;                       /* there was no room for descriptors of the reply just read */
	uint8_t data[MESSAGE_BYTES_MAX];     /* a datagram being written or just read */
	struct message_arena arena;          /* the reply just read */
};

/* ring.c */
struct ring {
	uint32_t limit;             /* of entries; 0: the daemon has no rings */
	uint64_t request;           /* id of the OpenRing; 0: not asked for */
	bool awaited;               /* the OpenRing is unanswered: the reply may bring a descriptor */
	struct ring_memory *memory; /* NULL: none */
	uint32_t entries, put, taken;
	unsigned runs; /* jobs that are out by the ring */
};

/* buffer.c */
struct buffers {
	struct links list; /* kops_buffer.node */
	unsigned requests; /* unanswered: replies may bring descriptors */
	uint64_t last;     /* id of one */
};

/* job.c */
struct jobs {
	struct links all; /* kops_job.node */
	struct links out; /* kops_job.out: unanswered, in order of submission */
	unsigned n_out;
	uint64_t last_prepared; /* number of one */
	uint64_t ops_max;       /* from Welcome */
	bool instances;         /* the daemon knows ops by names; true until a Welcome says otherwise */
	bool prepares;          /* the daemon knows prepared jobs */
};

/* session.c */
struct session {
	uint64_t hello;          /* id of the unanswered Hello; 0: none */
	int lost_status;         /* why the handle gave up; for kops_process() */
	bool lists;              /* the daemon knows lists of users, sessions and jobs */
	struct waiter *greeting; /* kops_open(); else NULL */
	struct call *call;
	char name[CLIENT_NAME_BYTES + 1];
	char daemon[CLIENT_NAME_BYTES + 1]; /* from Welcome */
};

/* await.c: whether this thread polls or sleeps. */
struct looks {
	int64_t sleep_until_us; /* do not poll before: other threads want the CPU */
	int64_t crowded_us;     /* how long that lasts */
	int64_t given_way_us;   /* when another thread took the CPU last */
	unsigned moves_left;    /* to other CPUs, until this thread kept its CPU for a while */
	long switches;          /* of this thread to others, by then */
	bool may_look;          /* enough CPUs to poll around the usual end of a long job, see struct waiter */
};

struct kops {
	uint32_t timeout_ms, spin_us;
	pid_t owner; /* the process that opened it */
	const bool
	    *own; /* a page that the kernel zeroes in a child of fork(): true in the owner; may be NULL */
	bool in_callback;
	unsigned ended; /* jobs and started buffers, ever */

	struct link link;
	struct ring ring;
	struct buffers buffers;
	struct jobs jobs;
	struct session session;
	struct looks looks;

	/* one_op.c */
	kops_job *one_op;                  /* one-op calls make their jobs in this one */
	kops_job *one_ops[CLIENT_ONE_OPS]; /* recent ones, which may come again; NULL: free places */
	unsigned one_ops_next;             /* to be replaced */

	/* Last, since these are large. */
	char error[CLIENT_WHY_BYTES];
	struct wire wire;
};

/* ---- Buffers ---- */

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

/* ---- Jobs ---- */

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

/*
 * Returns true for the copy of a handle in a child of fork(). It shares the parent's socket, so it must neither
 * send nor receive. This is one load a call: MADV_WIPEONFORK, unlike getpid(), is no system call. Unlike
 * pthread_atfork() it needs no list of all handles, and it also sees clone() and _Fork(). A child of vfork()
 * shares the parent's memory and changes nothing. Without that advice (Linux before 4.14) pids are compared.
 */
static inline bool client_is_copy(const kops *k)
{
	return k->own ? !*k->own : getpid() != k->owner;
}

#endif
