/*
 * fake_daemon.h: a scripted daemon in a thread, for the tests of libkops. A script accepts connections, expects
 * requests and answers them by hand. Its first unmet expectation ends it, and fake_stop() then fails the test.
 */
#ifndef KOPS_TEST_FAKE_DAEMON_H
#define KOPS_TEST_FAKE_DAEMON_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "kops.h"
#include "libkops/wire/link.h"
#include "message.h"

#define FAKE_PATIENCE_MS 10000

struct fake {
	char folder[64];
	char path[96];
	int listener;
	int sock;
	pthread_t thread;
	bool running;
	void (*script)(struct fake *);
	char failed[256];
	int fds_before;
	/* The last request: its bytes, and its descriptors, which the next fake_read() closes. */
	uint8_t data[MESSAGE_BYTES_MAX];
	size_t len;
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds;
	struct message_arena arena;
	/* For scripts to store things. */
	int memfd;
	bool prepares, lists, names, is_old; /* must be set before it greets */
	uint32_t ring_entries;               /* likewise */
	uint64_t ids[16];
	unsigned count; /* or, for fake_wait(), the step reached */
	uint8_t saved[MESSAGE_BYTES_MAX];
	size_t saved_len;
};

static inline int count_fds(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* ---- Steps of script and test: each waits for the other ---- */

static inline void fake_reach(struct fake *f, unsigned count)
{
	__atomic_store_n(&f->count, count, __ATOMIC_RELEASE);
}

static inline bool fake_wait(struct fake *f, unsigned count)
{
	for (unsigned ms = 0; ms < FAKE_PATIENCE_MS; ms++) {
		if (__atomic_load_n(&f->count, __ATOMIC_ACQUIRE) >= count)
			return true;
		usleep(1000);
	}
	return false;
}

/* ---- For scripts ---- */

static inline void fake_fail(struct fake *f, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static inline void fake_fail(struct fake *f, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(f->failed, sizeof f->failed, format, args);
	va_end(args);
	shutdown(f->sock, SHUT_RDWR); /* otherwise the client would wait for ever */
	pthread_exit(NULL);
}

static inline void fake_close_fds(struct fake *f)
{
	while (f->n_fds > 0)
		close(f->fds[--f->n_fds]);
}

static inline void fake_hang_up(struct fake *f)
{
	fake_close_fds(f);
	if (f->sock >= 0)
		close(f->sock);
	f->sock = -1;
}

static inline void fake_accept(struct fake *f)
{
	struct pollfd p = {.fd = f->listener, .events = POLLIN};
	if (poll(&p, 1, FAKE_PATIENCE_MS) != 1)
		fake_fail(f, "nobody connected");
	f->sock = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	if (f->sock < 0)
		fake_fail(f, "accept: %s", strerror(errno));
}

/* Returns the next request; NULL if the client closed. */
static inline Kops__V1__Request *fake_read(struct fake *f)
{
	struct pollfd p = {.fd = f->sock, .events = POLLIN};
	const char *why = "";
	fake_close_fds(f);
	if (poll(&p, 1, FAKE_PATIENCE_MS) != 1)
		fake_fail(f, "no request came");
	int status = message_recv(f->sock, f->data, &f->len, f->fds, &f->n_fds);
	if (status == KOPS_E_CONNECT)
		return NULL;
	if (status < 0)
		fake_fail(f, "receiving failed: %d", status);
	Kops__V1__Request *r = (Kops__V1__Request *)message_unpack(
	    &kops__v1__request__descriptor, f->data, f->len, MESSAGE_UNKNOWN_REFUSED, &f->arena, &why);
	if (!r)
		fake_fail(f, "bad request: %s", why);
	return r;
}

#define FAKE_VERB(name) KOPS__V1__REQUEST__BODY_##name

static inline Kops__V1__Request *fake_expect(struct fake *f, Kops__V1__Request__BodyCase verb)
{
	Kops__V1__Request *r = fake_read(f);
	if (!r)
		fake_fail(f, "verb %d expected, but the client closed", (int)verb);
	if (r->body_case != verb)
		fake_fail(f, "verb %d expected, but verb %d came", (int)verb, (int)r->body_case);
	return r;
}

static inline void fake_expect_end(struct fake *f)
{
	Kops__V1__Request *r;
	do
		r = fake_read(f);
	while (r && r->body_case == FAKE_VERB(DROP)); /* kops_close() gives its buffers back */
	if (r)
		fake_fail(f, "the end expected, but verb %d came", (int)r->body_case);
	fake_hang_up(f);
}

#define FAKE_CHECK(f, condition)                                                                               \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			fake_fail(f, "line %d: not %s", __LINE__, #condition);                                 \
	} while (0)

static inline void fake_send(struct fake *f, const Kops__V1__Reply *reply, int fd)
{
	uint8_t out[MESSAGE_BYTES_MAX];
	size_t len = 0;
	int rc = message_pack(&reply->base, out, &len);
	while (rc == 0 && (rc = message_send(f->sock, out, len, &fd, fd >= 0)) == KOPS_E_BUSY) {
		struct pollfd p = {.fd = f->sock, .events = POLLOUT}; /* waits until the client has read */
		rc = poll(&p, 1, FAKE_PATIENCE_MS) == 1 ? 0 : KOPS_E_TIMEOUT;
	}
	if (rc < 0)
		fake_fail(f, "cannot send a reply");
}

static inline void fake_answer(struct fake *f, uint64_t id, int status, const char *message)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	reply.id = id;
	reply.status = status;
	reply.message = (char *)message;
	fake_send(f, &reply, -1);
}

/* Sets six different times and a number; us: in total. */
#define FAKE_TIMES(to, us)                                                                                     \
	((to)->queue_us = (us) + 100, (to)->upload_us = (us) + 200, (to)->compute_us = (us) + 300,             \
	 (to)->download_us = (us) + 400, (to)->total_us = (us), (to)->paused_us = (us) + 500,                  \
	 (to)->pauses = 6)

static inline void fake_check_times(const kops_receipt *r, double us)
{
	assert_true(r->queue_us == us + 100 && r->upload_us == us + 200 && r->compute_us == us + 300 &&
	            r->download_us == us + 400 && r->total_us == us && r->paused_us == us + 500 &&
	            r->pauses == 6);
}

static inline void fake_receipt(struct fake *f, uint64_t id)
{
	Kops__V1__OpReceipt op = KOPS__V1__OP_RECEIPT__INIT, *ops[] = {&op};
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	op.op = "gemm", op.kernel = "fake", op.why = "it is the only one", op.flops = 16, op.compute_us = 2.5;
	op.larger_errors = true;
	receipt.device = "cpu", receipt.n_ops = 1, receipt.ops = ops;
	FAKE_TIMES(&receipt, 12.5);
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_RECEIPT;
	reply.receipt = &receipt;
	fake_send(f, &reply, -1);
}

/* Answers a prepared job: with all sentences, or as before. */
static inline void fake_receipt_prepared(struct fake *f, uint64_t id, bool as_before, double us)
{
	Kops__V1__OpReceipt op = KOPS__V1__OP_RECEIPT__INIT, *ops[] = {&op};
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	op.op = "gemm", op.kernel = "fake", op.why = "it is the only one", op.compute_us = us;
	receipt.prepared = true;
	receipt.as_before = as_before;
	FAKE_TIMES(&receipt, us);
	if (as_before) {
		receipt.n_ops_us = 1, receipt.ops_us = &us;
	} else {
		receipt.device = "cpu";
		receipt.n_ops = 1, receipt.ops = ops;
	}
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_RECEIPT;
	reply.receipt = &receipt;
	fake_send(f, &reply, -1);
}

static inline void fake_welcome(struct fake *f, uint64_t id, uint32_t version)
{
	Kops__V1__Welcome welcome = KOPS__V1__WELCOME__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	welcome.version = version, welcome.daemon = "kopsd fake", welcome.max_ops = 4;
	welcome.prepares = f->prepares;
	welcome.instances = !f->is_old;
	welcome.lists = f->lists;
	welcome.names = f->names;
	welcome.ring_entries = f->ring_entries;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_WELCOME;
	reply.welcome = &welcome;
	fake_send(f, &reply, -1);
}

static inline void fake_greet(struct fake *f)
{
	fake_accept(f);
	fake_welcome(f, fake_expect(f, FAKE_VERB(HELLO))->id, 1);
}

static inline int fake_memfd(uint64_t bytes)
{
	int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && (ftruncate(fd, (off_t)bytes) < 0 ||
	                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline void fake_lent(struct fake *f, uint64_t id, int fd, const char *device)
{
	Kops__V1__Lent lent = KOPS__V1__LENT__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	lent.device = (char *)device;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_LENT;
	reply.lent = &lent;
	fake_send(f, &reply, fd);
}

/* Answers one Alloc with memory, which is kept in f->memfd if that is free. Returns the buffer's id. */
static inline uint64_t fake_lend(struct fake *f)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	uint64_t buffer = r->alloc->buffer;
	if (r->alloc->kind == KOPS__V1__BUFFER_KIND__RESIDENT) {
		fake_lent(f, r->id, -1, "gpu1");
		return buffer;
	}
	int fd = fake_memfd(r->alloc->bytes);
	fake_lent(f, r->id, fd, "");
	if (f->memfd < 0)
		f->memfd = fd;
	else
		close(fd);
	return buffer;
}

/* ---- For tests ---- */

static inline void *fake_main(void *data)
{
	struct fake *f = data;
	f->script(f);
	return NULL;
}

static inline void fake_listen(struct fake *f)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strcpy(address.sun_path, f->path);
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(f->listener >= 0);
	assert_int_equal(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(f->listener, 16), 0);
}

static inline void fake_start(struct fake *f, void (*script)(struct fake *))
{
	f->script = script;
	assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
	f->running = true;
}

static inline void fake_stop(struct fake *f)
{
	if (f->running)
		pthread_join(f->thread, NULL);
	f->running = false;
	fake_hang_up(f);
	if (f->failed[0])
		fail_msg("the fake daemon: %s", f->failed);
}

static inline int fake_setup(void **state)
{
	struct fake *f = calloc(1, sizeof *f);
	if (!f)
		return -1;
	f->fds_before = count_fds();
	f->sock = f->memfd = -1;
	strcpy(f->folder, "/tmp/kops-test-XXXXXX");
	if (!mkdtemp(f->folder))
		return -1;
	snprintf(f->path, sizeof f->path, "%s/kopsd.sock", f->folder);
	fake_listen(f);
	*state = f;
	return 0;
}

static inline int fake_teardown(void **state)
{
	struct fake *f = *state;
	if (f->running)
		pthread_join(f->thread, NULL);
	fake_hang_up(f);
	if (f->failed[0])
		print_error("the fake daemon: %s\n", f->failed);
	if (f->memfd >= 0)
		close(f->memfd);
	if (f->listener >= 0)
		close(f->listener);
	unlink(f->path);
	rmdir(f->folder);
	int leaked = count_fds() - f->fds_before;
	if (leaked)
		print_error("%d descriptors leaked\n", leaked);
	free(f);
	return leaked ? -1 : 0;
}

static inline int fake_try_open(const struct fake *f, uint32_t timeout_ms, kops **ret_k, char why[512])
{
	kops_options options = {
	    .size = sizeof options, .socket = f->path, .name = "test", .timeout_ms = timeout_ms};
	why[0] = 0;
	return kops_open(ret_k, &options, why, 512);
}

static inline kops *fake_open(const struct fake *f)
{
	char why[512];
	kops *k = NULL;
	if (fake_try_open(f, FAKE_PATIENCE_MS, &k, why) < 0)
		fail_msg("kops_open: %s", why);
	return k;
}

/* Does not wait for the daemon, which may start later. */
static inline kops *fake_open_start(const struct fake *f, uint32_t timeout_ms)
{
	kops_options options = {.size = sizeof options, .socket = f->path, .timeout_ms = timeout_ms};
	char why[512];
	kops *k = NULL;
	if (kops_open_start(&k, &options, why, sizeof why) < 0)
		fail_msg("kops_open_start: %s", why);
	return k;
}

/* Sets a short timeout for calls that must time out; others keep fake_open()'s. */
static inline void fake_set_timeout(kops *k, uint32_t ms)
{
	k->timeout_ms = ms;
}

static inline kops_buffer *fake_alloc(kops *k, uint64_t bytes, unsigned flags)
{
	kops_buffer *b = NULL;
	if (kops_alloc(k, bytes, flags, NULL, &b) < 0)
		fail_msg("kops_alloc: %s", kops_error(k));
	return b;
}

/* Returns a view of 2 × 2 floats of a buffer, from this byte on. */
static inline kops_view fake_matrix(kops_buffer *b, uint64_t offset)
{
	return kops_matrix(b, offset, KOPS_F32, 2, 2, 0);
}

/* Makes a job of one transpose. */
static inline kops_job *fake_transpose(kops *k, kops_view from, kops_view to)
{
	kops_job *job = NULL;
	assert_int_equal(kops_job_new(k, NULL, &job), 0);
	assert_int_equal(kops_job_transpose(job, from, to, NULL), 0);
	return job;
}

/* Starts a script that greets and lends a buffer, and makes a job on that buffer. ret_buffer may be NULL. */
static inline kops_job *fake_start_job(struct fake *f, void (*script)(struct fake *), kops_buffer **ret_buffer)
{
	kops_buffer *b;
	kops *k;
	fake_start(f, script);
	k = fake_open(f);
	b = fake_alloc(k, 64, KOPS_SHARED);
	if (ret_buffer)
		*ret_buffer = b;
	return fake_transpose(k, fake_matrix(b, 0), fake_matrix(b, 16));
}

/* Makes a job of one gemm of 2 × 2 matrices at the start of three buffers. */
static inline kops_job *fake_gemm(kops *k, kops_buffer *a, kops_buffer *b, kops_buffer *c, double beta)
{
	kops_job *job = NULL;
	assert_int_equal(kops_job_new(k, NULL, &job), 0);
	assert_int_equal(kops_job_gemm(job, 1, fake_matrix(a, 0), fake_matrix(b, 0), beta, fake_matrix(c, 0),
	                               KOPS_PRECISION_F32, NULL),
	                 0);
	return job;
}

#endif
