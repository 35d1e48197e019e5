/*
 * scenario: does some of everything that clients do, and checks each result.
 *
 *     scenario SOCKET strict|lenient [rare]
 *
 * It finds the socket by its path, by its name in the current folder, and as kopsd.sock in $XDG_RUNTIME_DIR.
 *
 * lenient: one call fails somewhere, so a step may end with an error of kops; steps that depend on it are
 * skipped. strict: each step must succeed. Exit status 0: all is well. 1: a wrong result, an error that is not
 * kops's, has no sentence, or is not allowed. A reply that never comes (KOPS_E_TIMEOUT) is never allowed.
 * rare: also what takes long, and what clients seldom do.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include "kops.h"
#include "libkops/api/python.h"

enum { SIDE = 24, RUNS = 6, TIMEOUT_MS = 30000, SPIN_US = 1000, JOBS = 100 };
enum { LARGE = 1 << 20, HUGE = 8 << 20, MUCH = 16 << 20, LONG = 2900 };

static const kops_job_options on_cpu = {.size = sizeof on_cpu, .device = "cpu"};

static bool is_strict, is_rare;
static bool is_bad;

static void __attribute__((format(printf, 1, 2))) complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	is_bad = true;
}

/* Returns true if the step succeeded. */
static bool step(const char *what, int status, const char *why)
{
	if (status == 0)
		return true;
	if (status == KOPS_E_TIMEOUT || strcmp(kops_strerror(status), "unknown error") == 0)
		complain("%s: %d (%s): %s", what, status, kops_strerror(status), why);
	else if (!why[0])
		complain("%s: %d (%s), without a sentence", what, status, kops_strerror(status));
	else if (is_strict)
		complain("%s: %s", what, why);
	return false;
}

static bool call(kops *k, const char *what, int status)
{
	return step(what, status, kops_error(k));
}

static bool run(kops_job *job, const char *what, int status)
{
	(void)job;
	return step(what, status,
	            status == 0 || kops_job_error(job)[0] ? kops_job_error(job) : kops_strerror(status));
}

static void expect(const char *what, const float *got, size_t n, float (*value)(size_t i))
{
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(got[i] - value(i)) <= 1e-5f * fabsf(value(i)))) {
			complain("%s: element %zu is %g, not %g", what, i, (double)got[i], (double)value(i));
			return;
		}
}

/* ---- Matrices of SIDE × SIDE small integers ---- */

static float at_a(size_t i)
{
	return (float)(i % 5) - 2;
}

static float at_b(size_t i)
{
	return (float)(i % 7) - 3;
}

static float product(size_t i)
{
	float sum = 0;

	for (size_t k = 0; k < SIDE; k++)
		sum += at_a(i / SIDE * SIDE + k) * at_b(k * SIDE + i % SIDE);
	return sum;
}

static float transposed(size_t i)
{
	return at_a(i % SIDE * SIDE + i / SIDE);
}

static float doubled(size_t i)
{
	return 2 * at_a(i);
}

static float sum_of_row(size_t i)
{
	float sum = 0;

	for (size_t k = 0; k < SIDE; k++)
		sum += at_a(i * SIDE + k);
	return sum;
}

static float softmax(size_t i)
{
	double sum = 0;

	for (size_t k = 0; k < SIDE; k++)
		sum += exp((double)at_a(i / SIDE * SIDE + k));
	return (float)(exp((double)at_a(i)) / sum);
}

static void fill(kops_buffer *buffer, float (*value)(size_t i))
{
	float *x = kops_data(buffer);

	for (size_t i = 0; i < SIDE * SIDE; i++)
		x[i] = value(i);
}

static kops_view matrix(kops_buffer *buffer)
{
	return kops_matrix(buffer, 0, KOPS_F32, SIDE, SIDE, 0);
}

/* ---- Steps ---- */

static kops_buffer *lend(kops *k, uint64_t bytes)
{
	kops_buffer *buffer = NULL;

	call(k, "alloc", kops_alloc(k, bytes, KOPS_SHARED, NULL, &buffer));
	return buffer;
}

static bool is_told_of_close(kops *k)
{
	return strstr(kops_error(k), "close()");
}

/* Waits as long as kopsd refuses descriptors, because it still closes one that use_hanging_close() sent. */
static kops_buffer *import(kops *k)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	kops_buffer *buffer = NULL;
	int fd = memfd_create("scenario", MFD_CLOEXEC | MFD_ALLOW_SEALING), status;

	if (fd < 0 || ftruncate(fd, SIDE * SIDE * 4) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0) {
		complain("no memfd");
		return NULL;
	}
	for (unsigned i = 0; i < TIMEOUT_MS; i++) {
		status = kops_import(k, fd, SIDE * SIDE * 4, 0, &buffer);
		if (status == 0 || !is_told_of_close(k))
			break;
		poll(NULL, 0, 1);
	}
	call(k, "import", status);
	close(fd);
	return buffer;
}

static void one_op_calls(kops *k, kops_buffer *a, kops_buffer *b, kops_buffer *y)
{
	fill(a, at_a);
	fill(b, at_b);
	for (unsigned i = 0; i < RUNS; i++) { /* enough for kopsd to try kernels */
		memset(kops_data(y), 0xff, SIDE * SIDE * 4);
		if (call(k, "sgemm",
		         kops_sgemm(k, KOPS_N, KOPS_N, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, y, SIDE)))
			expect("sgemm", kops_data(y), SIDE * SIDE, product);
	}
	memset(kops_data(y), 0xff, SIDE * SIDE * 4);
	if (call(k, "transpose", kops_transpose(k, matrix(a), matrix(y))))
		expect("transpose", kops_data(y), SIDE * SIDE, transposed);
	memset(kops_data(y), 0xff, SIDE * SIDE * 4);
	if (call(k, "reduce",
	         kops_reduce(k, matrix(a), kops_tensor(y, 0, KOPS_F32, 1, (uint64_t[]){SIDE}), KOPS_SUM)))
		expect("reduce", kops_data(y), SIDE, sum_of_row);
}

static void run_again_and_again(kops_job *job, kops_buffer *y)
{
	for (unsigned i = 0; i < RUNS; i++) {
		memset(kops_data(y), 0xff, SIDE * SIDE * 4);
		if (run(job, "run", kops_run(job)))
			expect("run", kops_data(y), SIDE * SIDE, product);
	}
}

/* The third run goes by the ring. */
static void repeat(kops *k, kops_buffer *a, kops_buffer *b, kops_buffer *y)
{
	kops_job *job;

	if (!call(k, "job", kops_job_new(k, NULL, &job)))
		return;
	if (call(k, "softmax", kops_job_softmax(job, matrix(a), matrix(y), 1, false, NULL)) &&
	    call(k, "gemm",
	         kops_job_gemm(job, 1, matrix(a), matrix(b), 0, matrix(y), KOPS_PRECISION_F32, NULL)))
		run_again_and_again(job, y);
	kops_job_free(job);
}

static void prepare_and_cancel(kops *k, kops_buffer *a, kops_buffer *y)
{
	kops_job *job;
	int status;

	if (!call(k, "job",
	          kops_job_new(k, &(kops_job_options){.size = sizeof(kops_job_options), .queue = 3}, &job)))
		return;
	if (call(k, "softmax", kops_job_softmax(job, matrix(a), matrix(y), 1, false, NULL)) &&
	    run(job, "prepare", kops_job_prepare(job))) {
		memset(kops_data(y), 0xff, SIDE * SIDE * 4);
		if (run(job, "prepared", kops_run(job)))
			expect("softmax", kops_data(y), SIDE * SIDE, softmax);
		if (run(job, "submit", kops_submit(job, NULL, NULL))) {
			call(k, "cancel", kops_cancel(job));
			status = kops_wait(job, TIMEOUT_MS);
			if (status != KOPS_E_CANCELLED)
				run(job, "cancelled", status);
		}
	}
	kops_job_free(job);
}

/*
 * Multiplies a column by a row of 16-bit ones. On a CPU that takes a workspace as large as the result in f32:
 * one that kopsd keeps, then a larger one in its place.
 */
static void use_workspaces(kops *k)
{
	static const uint64_t sides[] = {100, 1500};
	const uint64_t longest = sides[1], bytes = 2 * longest * (longest + 2);
	kops_buffer *buffer = lend(k, bytes);
	uint16_t *x = buffer ? kops_data(buffer) : NULL;

	for (unsigned i = 0; x && i < sizeof sides / sizeof sides[0]; i++) {
		uint64_t n = sides[i], at = 2 * 2 * longest;
		kops_job *job;

		for (uint64_t j = 0; j < 2 * longest; j++)
			x[j] = 0x3c00;
		memset(x + 2 * longest, 0xff, 2 * n * n);
		if (!call(k, "job", kops_job_new(k, &on_cpu, &job)))
			continue;
		if (call(k, "gemm of f16",
		         kops_job_gemm(job, 1, kops_matrix(buffer, 0, KOPS_F16, n, 1, 0),
		                       kops_matrix(buffer, 2 * longest, KOPS_F16, 1, n, 0), 0,
		                       kops_matrix(buffer, at, KOPS_F16, n, n, 0), KOPS_PRECISION_F32, NULL)) &&
		    run(job, "run of f16", kops_run(job)))
			for (uint64_t j = 0; j < n * n; j++)
				if (x[at / 2 + j] != 0x3c00) {
					complain("gemm of f16: element %" PRIu64 " is wrong", j);
					break;
				}
		kops_job_free(job);
	}
	kops_free(buffer);
}

/* Copies into RESIDENT memory, adds that to itself, and copies it back. The buffer is large enough for huge
 * pages. */
static void use_resident(kops *k, kops_buffer *a, kops_buffer *y)
{
	kops_buffer *there = NULL;

	if (!call(k, "resident", kops_alloc(k, HUGE, KOPS_RESIDENT, NULL, &there)))
		return;
	memset(kops_data(y), 0xff, SIDE * SIDE * 4);
	if (call(k, "copy", kops_copy(k, matrix(a), matrix(there))) &&
	    call(k, "add", kops_add(k, matrix(there), matrix(there), matrix(there))) &&
	    call(k, "copy back", kops_copy(k, matrix(there), matrix(y))))
		expect("resident", kops_data(y), SIDE * SIDE, doubled);
	kops_free(there);
}

/* A child of fork() maps the buffer, unless the system refuses. */
static void inherit(kops_buffer *a)
{
	const float *x;
	int status = -1;
	pid_t child;

	fill(a, at_a);
	child = fork();
	if (child == 0) {
		x = kops_inherit(a);
		if (x)
			expect("inherit", x, SIDE * SIDE, at_a);
		_exit(is_bad);
	}
	if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
		complain("inherit: the child ended with status %#x", (unsigned)status);
}

/* Keeps the memory as NumPy needs it when its handle is closed. */
static void keep_private(kops *k)
{
	kops_buffer *buffer = lend(k, SIDE * SIDE * 4);

	if (!buffer)
		return;
	fill(buffer, at_b);
	if (call(k, "keep_private", kops_python_keep_private(buffer)))
		expect("keep_private", kops_data(buffer), SIDE * SIDE, at_b);
	kops_free(buffer);
}

/* Works like an event loop. */
static void start_and_process(kops *k, kops_buffer *a)
{
	kops_buffer *y = NULL;
	kops_job *job = NULL;
	bool is_there = call(k, "alloc_start", kops_alloc_start(k, LARGE, KOPS_SHARED, NULL, NULL, NULL, &y));

	if (is_there && call(k, "job", kops_job_new(k, NULL, &job)) &&
	    call(k, "copy", kops_job_copy(job, matrix(a), matrix(y), NULL)) &&
	    run(job, "submit", kops_submit(job, NULL, NULL))) {
		while (kops_job_is_out(job)) {
			struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};

			poll(&p, 1, kops_timeout(k));
			if (kops_process(k) < 0)
				break;
		}
		if (!kops_job_is_out(job) && run(job, "processed", kops_wait(job, 0)) && kops_data(y))
			expect("copy", kops_data(y), SIDE * SIDE, at_a);
	}
	kops_job_free(job);
	kops_free(y);
}

/*
 * Multiplies a matrix of LONG equal rows of ones by a column. On a CPU that takes a workspace as large as all
 * rows, which is more than kopsd keeps.
 */
static void use_large_workspace(kops *k)
{
	kops_buffer *buffer = lend(k, 3 * LONG * sizeof(double));
	kops_view ones = kops_matrix(buffer, 0, KOPS_F64, LONG, LONG, 0);
	kops_view column = kops_matrix(buffer, LONG * sizeof(double), KOPS_F64, LONG, 1, 0);
	kops_view sums = kops_matrix(buffer, 2 * LONG * sizeof(double), KOPS_F64, LONG, 1, 0);
	double *x = buffer ? kops_data(buffer) : NULL;
	kops_job *job = NULL;

	ones.strides[0] = 0;
	for (unsigned i = 0; x && i < 2 * LONG; i++)
		x[i] = 1;
	if (x && call(k, "job", kops_job_new(k, &on_cpu, &job)) &&
	    call(k, "gemm of f64",
	         kops_job_gemm(job, 1, ones, column, 0, sums, KOPS_PRECISION_F32, "openblas")) &&
	    run(job, "run of f64", kops_run(job)) && (x[2 * LONG] != LONG || x[3 * LONG - 1] != LONG))
		complain("gemm of f64: the sums are wrong");
	kops_job_free(job);
	kops_free(buffer);
}

/* Copies a matrix that is larger than the GPU's memory. */
static void copy_much(kops *k)
{
	const uint64_t rows = MUCH / sizeof(float) / SIDE;
	kops_buffer *from = lend(k, MUCH), *to = lend(k, MUCH);

	if (from && to) {
		fill(from, at_a);
		if (call(k, "copy much",
		         kops_copy(k, kops_matrix(from, 0, KOPS_F32, rows, SIDE, 0),
		                   kops_matrix(to, 0, KOPS_F32, rows, SIDE, 0))))
			expect("copy much", kops_data(to), SIDE * SIDE, at_a);
	}
	kops_free(from);
	kops_free(to);
}

static int connect_to(const char *path)
{
	const struct timeval limit = {.tv_sec = TIMEOUT_MS / 1000};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
		complain("no socket");
	connect(sock, (const struct sockaddr *)&address, sizeof address);
	return sock;
}

/* Sends what is no message, with a descriptor that is no memfd, and waits for the end of the session. */
static void send_junk(const char *path, int fd)
{
	char junk[64] = "junk";
	union {
		struct cmsghdr header;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control = {{.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {junk, 4};
	const struct msghdr message = {.msg_iov = &iov,
	                               .msg_iovlen = 1,
	                               .msg_control = control.bytes,
	                               .msg_controllen = sizeof control.bytes};
	int sock = connect_to(path);
	ssize_t n;

	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	if (sendmsg(sock, &message, MSG_NOSIGNAL) > 0) {
		while ((n = recv(sock, junk, sizeof junk, 0)) > 0)
			;
		if (n < 0 && errno == EAGAIN)
			complain("kopsd does not end a session that sent junk");
	}
	close(sock);
}

/* kopsd closes the first descriptor, which hangs until its other end is closed. Meanwhile it drops others. */
static void use_hanging_close(const char *path)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0) {
		complain("no pipe");
		return;
	}
	send_junk(path, ends[0]);
	send_junk(path, ends[0]);
	close(ends[0]);
	close(ends[1]);
}

/* Publishes a, attaches it and copies it from there. */
static void use_names(kops *k, kops_buffer *a, kops_buffer *y)
{
	kops_buffer *attached = NULL;
	kops_list *list = NULL;

	fill(a, at_a);
	if (!call(k, "publish", kops_publish(a, "scenario", NULL)))
		return;
	if (call(k, "attach", kops_attach(k, geteuid(), "scenario", &attached)) &&
	    call(k, "copy what is attached", kops_copy(k, matrix(attached), matrix(y)))) {
		expect("attached", kops_data(y), SIDE * SIDE, at_a);
		expect("attached memory", kops_data(attached), SIDE * SIDE, at_a);
	}
	if (call(k, "buffers", kops_list_buffers(k, &list)) && kops_list_count(list) == 0)
		complain("buffers: none");
	kops_list_free(list);
	kops_free(attached);
	call(k, "unpublish", kops_unpublish(k, geteuid(), "scenario"));
}

static void ask(kops *k)
{
	kops_info *info = NULL;
	kops_list *list = NULL;

	call(k, "ping", kops_ping(k));
	if (call(k, "query", kops_query(k, &info)) && (info->n_devices == 0 || info->n_kernels == 0))
		complain("query: %zu devices, %zu kernels", info->n_devices, info->n_kernels);
	kops_info_free(info);
	if (call(k, "users", kops_list_users(k, &list)) && kops_list_count(list) == 0)
		complain("users: none");
	kops_list_free(list);
	list = NULL;
	if (call(k, "sessions", kops_list_sessions(k, &list)) && kops_list_count(list) == 0)
		complain("sessions: none");
	kops_list_free(list);
	list = NULL;
	call(k, "trace", kops_list_jobs(k, 0, JOBS, &list));
	kops_list_free(list);
}

static void use(kops *k)
{
	kops_buffer *a = lend(k, SIDE * SIDE * 4), *b = import(k), *y = lend(k, LARGE);

	if (a && b && y) {
		one_op_calls(k, a, b, y);
		repeat(k, a, b, y);
		prepare_and_cancel(k, a, y);
		use_resident(k, a, y);
		use_names(k, a, y);
		start_and_process(k, a);
		inherit(a);
	}
	keep_private(k);
	ask(k);
	kops_free(a);
	kops_free(b);
	kops_free(y);
}

static kops *open_handle(const char *socket, const char *name)
{
	const kops_options options = {.size = sizeof options,
	                              .socket = socket,
	                              .name = name,
	                              .timeout_ms = TIMEOUT_MS,
	                              .spin_us = is_rare ? SPIN_US : 0};
	char why[256] = "";
	kops *k;

	return step("open", kops_open(&k, &options, why, sizeof why), why) ? k : NULL;
}

/* A client that is killed gives nothing back. */
static void vanish(const char *socket)
{
	int status = -1;
	pid_t child = fork();
	kops *k;

	if (child == 0) {
		k = open_handle(socket, "vanish");
		if (k)
			lend(k, LARGE);
		_exit(is_bad);
	}
	if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
		complain("the client that vanishes ended with status %#x", (unsigned)status);
}

static void open_and_use(const char *socket, const char *name, const char *socket_within)
{
	kops *k = open_handle(socket, name);

	if (!k)
		return;
	if (socket_within)
		open_and_use(socket_within, name, NULL);
	use(k);
	if (!socket)
		use_workspaces(k);
	if (!socket && is_rare) {
		use_large_workspace(k);
		copy_much(k);
	}
	kops_close(k);
}

int main(int argc, char **argv)
{
	const char *name = argc >= 3 ? strrchr(argv[1], '/') : NULL;

	if (!name) {
		fprintf(stderr, "usage: scenario /FOLDER/kopsd.sock strict|lenient [rare]\n");
		return 2;
	}
	is_strict = strcmp(argv[2], "strict") == 0;
	is_rare = argc == 4;
	close(STDIN_FILENO); /* libkops must not use its number */
	vanish(argv[1]);
	if (is_rare)
		use_hanging_close(argv[1]);
	open_and_use(argv[1], "scenario", name + 1);
	open_and_use(NULL, "", NULL);
	return is_bad;
}
