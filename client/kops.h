/*
 * kops.h: matrix jobs on the GPUs (or CPU) of this host, through the kopsd daemon.
 *
 * This header is the manual of libkops. The library links libc, libm and protobuf-c only, starts no
 * thread, keeps no global state, prints nothing and never exits.
 *
 * Concepts
 *   handle   struct kops: one connection to kopsd. One thread at a time may use a handle and its buffers and
 *            jobs. Several threads use one handle each.
 *   buffer   struct kops_buffer: memory that jobs read and write. SHARED buffers are mapped by this
 *            process and by kopsd; kops_data() is plain memory. RESIDENT buffers live on a device
 *            and have no address here: fill and read them with copy ops.
 *   view     kops_view: the elements of a buffer that an operand uses: byte offset, dtype, shape and
 *            strides. Transposing, leading dimensions and batches are strides and cost no copy.
 *   job      struct kops_job: ops that run in order on one device. A job is one message to kopsd and one
 *            answer, with a receipt. It is in flight from kops_submit() until this process learns of its end.
 */

/* Made by scripts/gen-ops: table of ops */

/*
 * The ops. Axes in brackets may be absent. The kops_job_OP() calls say more of each.
 *
 *     op          result                            operands                           types          in place
 *     gemm        c = activation(alpha * a * b +    a: [batch,] M, K                   f32, f64,      no
 *                 beta * c + bias)                  b: [batch,] K, N                   f16, bf16,
 *                                                   bias: 1 to 3 axes                  c64, c128
 *                                                   c: [batch,] M, N
 *     softmax     y = softmax(scale * x + mask)     x: 1 to 4 axes                     f32, f64,      y on x
 *                 over the last axis, or its        mask: x's shape                    f16, bf16
 *                 logarithm                         y: x's shape
 *     transpose   y[…, j, i] = x[…, i, j], bit for  x: 2 to 4 axes                     f32, f64,      no
 *                 bit                               y: x's shape with the last two     f16, bf16,
 *                                                     extents exchanged                i32, c64,
 *                                                                                      c128
 *     add         y = a + b, rounded once           a: 1 to 4 axes                     f32, f64,      y on a or
 *                                                   b: as a                            f16, bf16,     b
 *                                                   y: 1 to 4 axes                     c64, c128
 *     copy        y = x, bit for bit                x: 1 to 4 axes                     f32, f64,      no
 *                                                   y: x's shape                       f16, bf16,
 *                                                                                      i32, c64,
 *                                                                                      c128
 *     reduce      y = the sum, the largest, the     x: 1 to 4 axes, of complex         f32, f64,      no
 *                 mean, the smallest or the           numbers 1 to 3                   f16, bf16,
 *                 product of x over its last axis   y: x's shape without the last      c64, c128
 *                                                     axis, or with 1 there
 *     multiply    y = a * b, element by element,    a: 1 to 4 axes                     f32, f64,      y on a or
 *                 rounded once                      b: as a                            f16, bf16      b
 *                                                   y: 1 to 4 axes
 *     layer_norm  y = (x - mean) / sqrt(variance +  x: 1 to 4 axes                     f32, f64,      y on x or
 *                 eps) * weight + bias along the    weight: one axis, as long as x's   f16, bf16      residual;
 *                 last axis                           last                                            sum on x
 *                                                   bias: one axis, as long as x's                    or
 *                                                     last                                            residual
 *                                                   residual: x's shape
 *                                                   y: x's shape
 *                                                   sum: x's shape
 *     gather      y[i, :] = x[indices[i], :], bit   x: [rows, columns]                 x: f32, f64,   no
 *                 for bit                           indices: 1 or 2 axes, of rows of     f16, bf16,
 *                                                     x from 0 on                        i32, c64 or
 *                                                   y: the indices' axes, then x's       c128
 *                                                     columns                          indices: i32
 *                                                                                      y: x's type
 *     rms_norm    y = x / sqrt(mean of x^2 + eps)   x: 1 to 4 axes                     f32, f64,      y on x or
 *                 * weight + bias along the last    weight: one axis, as long as x's   f16, bf16      residual;
 *                 axis                                last                                            sum on x
 *                                                   bias: one axis, as long as x's                    or
 *                                                     last                                            residual
 *                                                   residual: x's shape
 *                                                   y: x's shape
 *                                                   sum: x's shape
 *     subtract    y = a - b, element by element,    a: 1 to 4 axes                     f32, f64,      y on a or
 *                 rounded once                      b: as a                            f16, bf16,     b
 *                                                   y: 1 to 4 axes                     c64, c128
 *     unary       y = function(scale * x), limited  x: 1 to 4 axes                     f32, f64,      y on x
 *                 to [low, high]                    y: x's shape                       f16, bf16
 *     attention   o = softmax(scale * q * kT +      q: queries: [batch, heads,         q: f32, f64,   no
 *                 mask) * v, for each batch and       queries, head_dim], or without     f16 or bf16
 *                 head                                batch, or without heads too      k: q's type
 *                                                   k: keys: [batch, kv_heads, keys,   v: q's type
 *                                                     head_dim]                        mask: q's
 *                                                   v: values: [batch, kv_heads,         type
 *                                                     keys, value_dim]                 lengths: i32
 *                                                   mask: added to scale * q * kT      o: q's type
 *                                                   lengths: how many keys of each     lse: f32 or
 *                                                     batch count, the first ones:       f64
 *                                                     [batch]
 *                                                   o: [batch, heads, queries,
 *                                                     value_dim]
 *                                                   lse: the logarithm of the sum of
 *                                                     exponentials of what a query
 *                                                     sees: [batch, heads, queries]
 *     arg_reduce  y = the index of the largest or   x: 1 to 4 axes                     x: f32, f64,   no
 *                 smallest element of x along its   y: x's shape without the last        f16 or bf16
 *                 last axis                           axis, or with 1 there            y: i32
 *     top_k       values = the k largest or         x: 1 to 4 axes                     x: f32, f64,   no
 *                 smallest elements of x along its  values: x's shape with k along       f16 or bf16
 *                 last axis, indices = where they     the last axis                    values: x's
 *                 are                               indices: the shape of values         type
 *                                                                                      indices: i32
 *     search      values = the k best scores of     queries: [queries, columns]        queries: f32,  no
 *                 each query with rows of base,     base: [rows, columns]                f16 or bf16
 *                 indices = these rows              filter: [words] or [queries,       base:
 *                                                     words], words = rows / 32          queries's
 *                                                     rounded up                         type
 *                                                   values: [queries, k], the scores   filter: i32
 *                                                   indices: [queries, k], rows of     values: f32
 *                                                     base, if wanted                  indices: i32
 *     cholesky    factor = L with a = L * LH, or U  a: […, n, n]: symmetric or         a: f32, f64,   factor on
 *                 with a = UH * U                     Hermitian matrices, of which       c64 or c128  a
 *                                                     one triangle is read             factor: a's
 *                                                   factor: a's shape                    type
 *                                                   info: […], [1] of one matrix: 0,   info: i32
 *                                                     or the order of the first
 *                                                     leading minor that is not
 *                                                     positive definite
 *     triangular  x with a * x = b, or x * a = b,   a: […, n, n], of which one         f32, f64,      x on b
 *     _solve      a triangular                        triangle is read                 c64, c128
 *                                                   b: […, n, m], or […, m, n] with
 *                                                     right
 *                                                   x: b's shape
 *     lu          lu = L and U with P * a = L * U,  a: […, m, n]                       a: f32, f64,   lu on a
 *                 pivots = the exchanges of rows    lu: a's shape                        c64 or c128
 *                 that make P                       pivots: […, min(m, n)]: row i was  lu: a's type
 *                                                     exchanged with row pivots[i],    pivots: i32
 *                                                     from 0 on                        info: i32
 *                                                   info: […], [1] of one matrix: 0,
 *                                                     or the number, from 1 on, of
 *                                                     the first diagonal element of U
 *                                                     that is 0
 */

/* End of table of ops */

/*
 * One product C = A * B of row-major float matrices, by a one-op call:
 *
 *     kops *k;
 *     kops_buffer *a, *b, *c;
 *     kops_open(&k, NULL, NULL, 0);
 *     kops_alloc(k, m * K * sizeof(float), KOPS_SHARED, NULL, &a); ... b, c ...
 *     fill((float *)kops_data(a)); ...
 *     if (kops_sgemm(k, KOPS_N, KOPS_N, m, n, K, 1.0f, a, K, b, n, 0.0f, c, n) < 0)
 *         puts(kops_error(k));
 *
 * A whole program, whose job computes softmax(A * B) by two ops:
 *
 *     #include <kops.h>
 *     #include <stdio.h>
 *
 *     enum { M = 256, K = 128, N = 64 };
 *
 *     static int add_ops(kops_job *job, kops_buffer *a, kops_buffer *b, kops_buffer *c)
 *     {
 *         kops_view A = kops_matrix(a, 0, KOPS_F32, M, K, 0), B = kops_matrix(b, 0, KOPS_F32, K, N, 0);
 *         kops_view C = kops_matrix(c, 0, KOPS_F32, M, N, 0);
 *         int status = kops_job_gemm(job, 1, A, B, 0, C, KOPS_PRECISION_F32, NULL);
 *         return status < 0 ? status : kops_job_softmax(job, C, C, 1, false, NULL);
 *     }
 *
 *     int main(void)
 *     {
 *         kops *k;
 *         kops_buffer *a, *b, *c;
 *         kops_job *job;
 *         char why[256];
 *         if (kops_open(&k, NULL, why, sizeof why) < 0) {
 *             fprintf(stderr, "%s\n", why);
 *             return 1;
 *         }
 *         if (kops_alloc(k, M * K * sizeof(float), KOPS_SHARED, NULL, &a) < 0 ||
 *             kops_alloc(k, K * N * sizeof(float), KOPS_SHARED, NULL, &b) < 0 ||
 *             kops_alloc(k, M * N * sizeof(float), KOPS_SHARED, NULL, &c) < 0)
 *             goto fail;
 *         for (int i = 0; i < M * K; i++)
 *             ((float *)kops_data(a))[i] = 0.01f * (float)(i % 100);
 *         for (int i = 0; i < K * N; i++)
 *             ((float *)kops_data(b))[i] = 1; // so all elements of a row are equal
 *         if (kops_job_new(k, NULL, &job) < 0 || add_ops(job, a, b, c) < 0 || kops_run(job) < 0)
 *             goto fail;
 *         printf("%g, in %g us on %s\n", ((float *)kops_data(c))[0], kops_job_receipt(job)->total_us,
 *                kops_job_receipt(job)->device);
 *         kops_close(k); // frees the job and the buffers too
 *         return 0;
 *     fail:
 *         fprintf(stderr, "%s\n", kops_error(k));
 *         kops_close(k);
 *         return 1;
 *     }
 *
 * To do other work while the job runs, call kops_submit(). Then call kops_wait(), pass a callback, or call
 * kops_process() from an event loop.
 *
 * Blocking: these calls block until the daemon answers. Their comments say "Blocks."
 *     kops_open()          kops_alloc()   kops_import()     kops_buffer_wait()   kops_buffer_wait_idle()
 *     kops_job_prepare()   kops_wait()    kops_run()        kops_run_for()       kops_submit_and_wait()
 *     kops_ping()          kops_query()   kops_list_users(), _sessions(), _jobs(), _buffers()
 *     kops_publish()       kops_unpublish()   kops_attach()    and the one-op calls
 *
 *   - A call blocks at most for its own parameter timeout_ms, or else for the handle's timeout
 *     (kops_options.timeout_ms), reconnecting included. Then it returns KOPS_E_TIMEOUT or KOPS_E_CONNECT.
 *   - It runs callbacks while it blocks. Called from a callback, it returns KOPS_E_STATE.
 *   - No other call blocks, even while the daemon is stopped, stuck, restarting or gone.
 *   - An event loop needs none of these calls. It begins with kops_open_start(), kops_alloc_start() and
 *     kops_submit().
 *   - Questions about health, devices, users and jobs always block. A thread that watches a daemon asks on a
 *     handle of its own, with a short timeout.
 *
 * Timeouts: kops_run(), kops_run_for() and the one-op calls cancel their job when the time is over, and return
 * at once. kopsd then drops a waiting job. It stops a running job within some 50 ms, at the next point where
 * the job can be paused. Until then kopsd may still read its inputs and write its outputs.
 * kops_buffer_is_busy() returns true as long as it may, and kops_buffer_wait_idle() blocks until it may not.
 * kops_wait() and kops_submit_and_wait() do not cancel the job: wait again, or call kops_cancel().
 *
 * Signals: a blocking call continues after a signal handler returns. Do not leave any call by longjmp(), by an
 * exception from a signal handler or by pthread_cancel(): the handle is unusable afterwards. Disable
 * cancellation around calls (pthread_setcancelstate()), or call from a thread that is never cancelled. A thread
 * that must be able to stop waiting waits in short steps.
 *
 * Memory order: a job sees what this thread stored to its SHARED buffers before kops_submit(). This
 * thread sees the job's output once kops_wait() or the callback has reported it done. Between the
 * two, do not touch the job's outputs and do not write its inputs: the result would be undefined.
 *
 * Errors: functions return 0 (or a count) or a negative KOPS_E_* code. ret_ parameters are written
 * on success only. kops_error() returns a sentence that explains the failure. A failed job does not break the
 * handle. Neither does KOPS_E_CONNECT: the next call connects again. Each call below names its own
 * codes. Any call can also return KOPS_E_SYSTEM. Any blocking call can return KOPS_E_CONNECT, KOPS_E_TIMEOUT
 * and KOPS_E_PROTOCOL.
 *
 * Restarts: when the daemon restarts while jobs are in flight, the handle reconnects, shares its buffers again
 * under their old ids and sends every unanswered job again. A job is not sent again if its inputs may
 * have changed. It fails with KOPS_E_INTERRUPTED, and the caller decides. Its inputs may have changed if
 *   - it overwrites them itself (gemm with beta != 0, in-place ops), or a later unanswered job does,
 *     unless an earlier op that is repeated too writes them first; or
 *   - a job that is not sent again should have written them.
 *
 * A job that was in flight at three deaths of the daemon in a row may have caused them, so it fails in the same
 * way. A buffer that was being made at three deaths in a row fails too. A restart loses the content of
 * RESIDENT buffers: jobs that read one fail with KOPS_E_LOST until one op has written all of it.
 *
 * Published buffers: a buffer that many processes use, such as the weights of a model, is published under a
 * name by one process and attached by the others. See kops_publish(). After a restart of the daemon, SHARED
 * buffers are published again by their publisher's handle. A RESIDENT one is not, since its content is lost:
 * kops_published() returns NULL then, and its publisher fills it and publishes it again. Meanwhile, jobs that
 * read an attached buffer fail with KOPS_E_LOST. Each such job asks for it again.
 *
 * fork(): a handle belongs to the process that opened it. A child that needs kops opens its own handle.
 *
 *   - In a child, calls on the parent's handle return KOPS_E_STATE, and calls that return no code do nothing.
 *     The parent's connection, jobs and buffers are not disturbed.
 *   - SHARED buffers are not mapped in a child: kops_data() is NULL, and an address from before fork()
 *     faults, unless the child calls kops_inherit(). Attached ones stay mapped, as they were at fork().
 *   - kops_close() in a child closes the descriptors of its copy and frees its memory. It does not close
 *     numbers that are other files by now. Until kops_close() or exec(), the child keeps the session alive if
 *     the parent dies without kops_close().
 *   - If another thread was in a call on the handle at fork(), the child must not use the copy, and not even
 *     close it.
 *   - vfork() or posix_spawn() with exec() need no care: every descriptor is close-on-exec.
 *
 * Descriptors: a handle keeps a socket, and a memfd for each SHARED buffer. Their numbers are always above 2. A
 * program may close descriptors that it does not know (closefrom(), daemons), and open its own files under
 * their numbers. Calls notice that, and neither write to nor close such a file.
 *
 *   - The connection is then lost as in a restart of the daemon, with the same consequences for jobs in
 *     flight and for RESIDENT buffers. The next call connects again.
 *   - SHARED buffers stay mapped where they are, with their content, and are shared again. A buffer is first
 *     copied to a new memfd if its memfd is lost, or if a job in flight uses it. That takes 0.5 ms a MiB.
 *
 * libkops cannot repair three things:
 *   - Imported memory whose descriptor was closed, unless it was KOPS_GIVEN: jobs that use it fail with
 *     KOPS_E_FD. Import it again.
 *   - While another thread is in a call on the handle, closing its descriptors may go unnoticed until that call
 *     next sleeps.
 *   - What another thread of the program stores into a buffer while it is copied may be lost.
 *
 * Accuracy: the `precision` of a gemm on f32 limits which kernels may run.
 *   KOPS_PRECISION_F32   (default) error no worse than cuBLAS SGEMM's on the same data
 *   KOPS_PRECISION_IEEE  plain fp32 fused multiply-adds only
 *   KOPS_PRECISION_TF32  operands may be rounded to tf32, _BF16: to bfloat16
 */

#ifndef KOPS_H
#define KOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops_types.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The version of this header; tests/source/version compares it with the project's in CMakeLists.txt. */
#define KOPS_VERSION_MAJOR 0
#define KOPS_VERSION_MINOR 1
#define KOPS_VERSION_PATCH 0

typedef struct kops kops;
typedef struct kops_buffer kops_buffer;
typedef struct kops_job kops_job;

/* ---- Errors ------------------------------------------------------------------------------- */

/* The codes are enum kops_status in kops_types.h. */

/* Returns the short text of a code ("view exceeds its buffer"), or "unknown error". Static memory. */
const char *kops_strerror(int code);

/* ---- Handles ------------------------------------------------------------------------------ */

/*
 * Set .size = sizeof(kops_options). Members that a newer library adds then have their defaults. 0 and NULL
 * always mean the default.
 */
typedef struct kops_options {
	size_t size;
	/* NULL: $KOPS_SOCKET, else $XDG_RUNTIME_DIR/kopsd.sock if it exists and the user owns that folder,
	 * else /run/kopsd/kopsd.sock. A relative path begins at the current folder at kops_open(), for later
	 * connections too.
	 */
	const char *socket;
	const char *name;    /* shown in lists and the daemon's log, at most 64 bytes; NULL: the program's */
	uint32_t timeout_ms; /* for blocking calls and for reconnecting; 0: 30000 */
	/* Blocking calls poll for the answer this long before they sleep; 0: they sleep at once. Polling keeps
	 * a CPU busy, but saves the 5 to 50 µs that waking a thread takes.
	 *
	 * With 0, a call that waits for a repeated job of over 0.1 ms wakes shortly before the job's usual end,
	 * if CPUs are idle. If another thread takes the CPU, the call moves its own thread to another CPU by
	 * sched_setaffinity(2), and then allows all its CPUs again. A seccomp filter must allow that. If that
	 * does not help, or more than 8 jobs are in flight, calls sleep at once. */
	uint32_t spin_us;
} kops_options;

/*
 * Connects to the daemon. Blocks, but fails at once when nothing listens at the socket. options may be NULL.
 * Close the handle with kops_close(). On failure *ret_handle is untouched and, if why is not NULL, up to
 * why_size bytes of it hold the sentence.
 * KOPS_E_CONNECT, KOPS_E_VERSION, KOPS_E_TIMEOUT, KOPS_E_NOMEM; KOPS_E_QUOTA if this
 * user has too many sessions, or all users together.
 */
int kops_open(kops **ret_handle, const kops_options *options, char *why, size_t why_size);

/*
 * kops_open() for event loops. Does not block. The handle may be used at once: requests go out together with
 * the greeting. Fails at once when nothing listens at the socket. If the daemon refuses the connection
 * later, or does not answer within the timeout, kops_process() returns the code. All pending jobs and buffers
 * then fail with it.
 * KOPS_E_CONNECT, KOPS_E_NOMEM.
 */
int kops_open_start(kops **ret_handle, const kops_options *options, char *why, size_t why_size);

/*
 * Ends the session and frees the handle with all its buffers and jobs, mappings included. Does not block:
 * unfinished jobs and buffers are abandoned, and their callbacks are not called. The daemon cancels such jobs.
 * It may write imported memory until they have stopped. NULL is allowed. Does nothing inside a callback. In a
 * child of fork() it frees this process's copy only: the session is the parent's.
 */
void kops_close(kops *k);

/* The sentence for the last failed call on this handle; "" before the first. Valid until the next call. */
const char *kops_error(const kops *k);

/*
 * Asks for kopsd's health. Returns 0 if every device passed its last self-check, KOPS_E_FAULT if one did not.
 * Blocks for one round trip, and for a new self-check if the last one is older than a second.
 */
int kops_ping(kops *k);

/* ---- Buffers ------------------------------------------------------------------------------ */

enum kops_buffer_flags {
	KOPS_SHARED = 0,    /* kops_alloc: memory from the daemon: mapped, zeroed, ready for DMA */
	KOPS_RESIDENT = 1,  /* kops_alloc: memory of one device */
	KOPS_READ_ONLY = 2, /* kops_import: the daemon must not write it */
	KOPS_GIVEN = 4,     /* kops_import: nobody else has or maps the memfd, so libkops may replace it */
};

/*
 * Allocates zeroed memory of `bytes` > 0. Blocks. device is for KOPS_RESIDENT only: "gpu0", "cpu", …;
 * NULL: the daemon's first device. Free with kops_free(). SHARED memory counts towards the user's limit as the
 * next power of two from 64 KiB to 64 MiB, and beyond as a multiple of 2 MiB.
 * KOPS_E_INVALID (bytes is 0, or a device for KOPS_SHARED), KOPS_E_NOMEM, KOPS_E_QUOTA, KOPS_E_DEVICE.
 */
int kops_alloc(kops *k, uint64_t bytes, unsigned flags, const char *device, kops_buffer **ret_buffer);

/*
 * Shares a memfd of yours, sealed with F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL and at least `bytes`
 * long. Blocks. The library keeps a duplicate and a mapping of its own; fd stays yours. KOPS_READ_ONLY in
 * flags: jobs may only read it. KOPS_GIVEN promises that you close fd and map the memfd nowhere else. Prefer
 * kops_alloc(): its memory needs no first touch and no pinning. KOPS_E_FD (kops_error() says what is wrong with
 * fd), KOPS_E_INVALID (bytes is 0), KOPS_E_NOMEM, KOPS_E_QUOTA.
 */
int kops_import(kops *k, int fd, uint64_t bytes, unsigned flags, kops_buffer **ret_buffer);

/*
 * Called once, from kops_process() or a blocking call, when a started buffer is ready or could not be made.
 * status is 0 or KOPS_E_*. It may do what a job's kops_callback may.
 */
typedef void kops_buffer_callback(kops_buffer *buffer, int status, void *user);

/*
 * kops_alloc() and kops_import() for event loops. They do not block. The buffer is being made until
 * kops_process(), or a blocking call, calls done(buffer, status, user). done may be NULL. Without a daemon the
 * buffer is made when one is back, within the handle's timeout.
 *
 *   - Jobs that use the buffer may be made and submitted meanwhile: they run once it is made, and fail with its
 *     code if it cannot be made. So RESIDENT and imported buffers need no callback.
 *   - kops_data() of a SHARED buffer is NULL until it is ready. kops_process() maps it then, which takes 50 µs
 *     a MiB. Imported memory is mapped at once.
 *   - A buffer that could not be made is still the caller's: free it with kops_free().
 *   - kops_free() while it is being made is allowed: the callback is not called then.
 *
 * They return errors of the arguments as kops_alloc() and kops_import() do, KOPS_E_NOMEM or KOPS_E_SYSTEM. The
 * callback gets all other errors.
 */
int kops_alloc_start(kops *k, uint64_t bytes, unsigned flags, const char *device, kops_buffer_callback *done,
                     void *user, kops_buffer **ret_buffer);
int kops_import_start(kops *k, int fd, uint64_t bytes, unsigned flags, kops_buffer_callback *done, void *user,
                      kops_buffer **ret_buffer);

/*
 * Blocks until a started buffer is ready, at most for timeout_ms: 0 only looks, negative means no limit.
 * Returns 0, or the code of a buffer that could not be made. After KOPS_E_TIMEOUT the buffer is still being
 * made: wait again. KOPS_E_CANCELLED if a callback freed it.
 */
int kops_buffer_wait(kops_buffer *buffer, int timeout_ms);

/*
 * Returns true while a job that uses the buffer is in flight: submitted, and not yet known to have ended. kopsd
 * may then read and write the memory. Cancelled and freed jobs count too, and jobs whose call timed out. Only
 * blocking calls and kops_process() learn that a job has ended. False in a child of fork().
 */
bool kops_buffer_is_busy(const kops_buffer *buffer);

/*
 * Blocks until no job in flight uses the buffer, at most for timeout_ms: 0 only looks, negative means no
 * limit. Returns 0 however those jobs ended. KOPS_E_TIMEOUT: one is still in flight. KOPS_E_CANCELLED if a
 * callback freed the buffer.
 */
int kops_buffer_wait_idle(kops_buffer *buffer, int timeout_ms);

/* Returns a sentence that explains why the buffer could not be made; "" otherwise. Valid until it is freed. */
const char *kops_buffer_error(const kops_buffer *buffer);

/*
 * Frees the buffer. Does not block. Jobs already submitted still finish with it, but this process's mapping
 * is removed at once. NULL is allowed.
 */
void kops_free(kops_buffer *buffer);

/*
 * The memory of a SHARED buffer, and the size in bytes of any buffer. kops_data() is NULL for RESIDENT buffers,
 * while a buffer of kops_alloc_start() is being made, and in a child of fork().
 */
void *kops_data(const kops_buffer *buffer);
uint64_t kops_size(const kops_buffer *buffer);

/* Returns the device of a RESIDENT buffer: "gpu0"; "" for SHARED memory, and before kopsd has told it. */
const char *kops_buffer_device(const kops_buffer *buffer);

/*
 * In a child of fork(): maps a SHARED buffer of the parent at its address in the parent, so that pointers from
 * before fork() are valid again. Does not block.
 *
 *   - What the child writes is private to it. A page that the child has not written shows what parent and
 *     daemon store there. Once the parent frees the buffer, the content of such pages is undefined.
 *   - Call it before kops_close(), which keeps the mapping. munmap(2) ends it.
 *   - The mapping is read-only if the system grants no memory for copies (vm.overcommit_memory=2, RLIMIT_DATA).
 *
 * Returns the address, or NULL if
 *   - this is not a child of the process that opened the handle,
 *   - the buffer has no memory in the parent, is attached, or its descriptor was closed,
 *   - something else lies at the address by now, or
 *   - the system refuses.
 */
void *kops_inherit(const kops_buffer *buffer);

/* ---- Views -------------------------------------------------------------------------------- */

/*
 * Making a view checks nothing and never fails. Mistakes are reported when it is used: see "Adding ops" for
 * what libkops refuses, and "Errors of jobs" for what the daemon refuses.
 */

/* Returns the bytes of one element; 0 for an unknown dtype. */
size_t kops_dtype_size(kops_dtype dtype);

/*
 * Element (i0, …) lies at byte offset + kops_dtype_size(dtype) * Σ i_d * strides[d] of the buffer.
 * Strides count elements and may be negative; 0 repeats along an axis (inputs only). Begin with zeros: = {0},
 * or designated members. The struct has more axes than jobs take today, so that its size need not change.
 */
#define KOPS_VIEW_AXES 8
typedef struct kops_view {
	kops_buffer *buffer;
	uint64_t offset; /* of element (0, 0, …) in bytes; a multiple of the element size */
	kops_dtype dtype;
	uint32_t rank;                   /* 1 … KOPS_RANK_MAX */
	uint64_t shape[KOPS_VIEW_AXES];  /* the first `rank` of them count */
	int64_t strides[KOPS_VIEW_AXES]; /* likewise */
	uint64_t reserved[2];            /* 0, for what later versions add */
} kops_view;

/* Makes a row-major view of rows × cols from byte `offset`, with ld elements from row to row (0: cols). */
kops_view kops_matrix(kops_buffer *buffer, uint64_t offset, kops_dtype dtype, uint64_t rows, uint64_t cols,
                      uint64_t ld);

/* Makes a row-major view without gaps, of any rank. */
kops_view kops_tensor(kops_buffer *buffer, uint64_t offset, kops_dtype dtype, uint32_t rank,
                      const uint64_t *shape);

/* Exchanges the last two axes of a view. For rank 1 it returns a view that no job accepts. */
kops_view kops_transposed(kops_view view);

/* ---- Published buffers ---------------------------------------------------------------------- */

/*
 * Set .size = sizeof(kops_publish_options). 0 always means the default.
 */
typedef struct kops_publish_options {
	size_t size;
	kops_access access;  /* who may attach it, besides root; the default is the own user */
	uint32_t group;      /* the gid for KOPS_GROUP */
	bool keep;           /* the name outlives this handle, until kops_unpublish() */
	uint8_t reserved[3]; /* 0, for what later versions add */
	/* What lies in the buffer, row-major from its start, for those who attach it; rank 0: not told. */
	kops_dtype dtype;
	uint32_t rank;                  /* at most KOPS_RANK_MAX */
	uint64_t shape[KOPS_VIEW_AXES]; /* the first `rank` of them count */
} kops_publish_options;

/*
 * Publishes a buffer under a name of this user's, by which other processes attach it. Blocks. options may be
 * NULL. A name has 1 to 255 characters: parts of letters, digits and ._-+, joined by /, and no part is . or ..
 *
 *   - From now on no job may write the buffer, until it is unpublished and nobody has it attached. Jobs that
 *     would write it fail with KOPS_E_READONLY, also those in flight: wait for the jobs that fill it first.
 *     Do not store to a SHARED buffer either, and not later what those who attached it must not see: they
 *     may still have it mapped.
 *   - The name ends with this handle's session, by kops_unpublish(), or with `keep` only by that. The memory
 *     stays, and counts as this user's, until the buffer is freed, its name has ended and nobody has it
 *     attached. So it may be freed at once; but after a restart only buffers that are not freed are published
 *     again.
 *   - A buffer has one name at a time.
 *
 * KOPS_E_INVALID (the name or options, or an attached buffer), KOPS_E_EXISTS (the user has published another
 * buffer by this name), KOPS_E_STATE (the buffer is published already), KOPS_E_BUSY (a job that writes it is
 * running), KOPS_E_LOST, KOPS_E_RANGE (dtype and shape do not fit), KOPS_E_FD (imported memory that others
 * could write), KOPS_E_QUOTA, KOPS_E_UNSUPPORTED (the daemon is too old).
 */
int kops_publish(kops_buffer *buffer, const char *name, const kops_publish_options *options);

/*
 * The name that the buffer is published under, as far as this process knows; NULL: none. A restart of the
 * daemon, or a lost connection, ends the name of a RESIDENT buffer; then fill it and call kops_publish() again.
 */
const char *kops_published(const kops_buffer *buffer);

/*
 * Withdraws a name, of this user (geteuid()) or, for root, of any; any process of the user may. Blocks.
 * Attached buffers stay. KOPS_E_NOT_FOUND, KOPS_E_UNSUPPORTED.
 */
int kops_unpublish(kops *k, uint32_t uid, const char *name);

/*
 * Makes the buffer that the user `uid` has published as `name` one of this handle's, for reading only. Blocks.
 * Free it with kops_free(). kops_data() of a SHARED buffer is memory that may only be read. The same sentence
 * tells of names that do not exist and of those that this process may not attach.
 *
 * After a restart of the daemon, it is attached again as soon as it is published again. A SHARED buffer then
 * has the content that was published last, at the same address. If its size is another, jobs that read it fail
 * with KOPS_E_LOST: free it, and attach it again.
 *
 * KOPS_E_NOT_FOUND, KOPS_E_INVALID, KOPS_E_QUOTA, KOPS_E_NOMEM, KOPS_E_UNSUPPORTED (the daemon is too old).
 */
int kops_attach(kops *k, uint32_t uid, const char *name, kops_buffer **ret_buffer);

/* The view of an attached buffer that its publisher told. Rank 0: the publisher told none, or it is not
 * attached. */
kops_view kops_attached_view(kops_buffer *buffer);

/* ---- Jobs --------------------------------------------------------------------------------- */

typedef struct kops_job_options {
	size_t size;    /* sizeof(kops_job_options) */
	uint32_t queue; /* jobs of one handle in one queue run in order; different queues may overlap */
	kops_priority priority;
	/* "gpu0"; "gpu*": any GPU; NULL: any device. In the last two cases several GPUs may compute a large op
	 * together, if it is alone in its job. */
	const char *device;
	uint64_t deadline_us; /* from arrival at the daemon to the start of the job; 0: none */
	bool timed;           /* time the ops by the device's clock, to the microsecond; the job takes longer */
	uint8_t reserved[7];  /* 0, for what later versions add */
} kops_job_options;

/*
 * Makes an empty job. Does not block. options may be NULL. Free with kops_job_free().
 * KOPS_E_NOMEM, KOPS_E_INVALID (an invalid device name, or reserved members that are not 0).
 */
int kops_job_new(kops *k, const kops_job_options *options, kops_job **ret_job);

/*
 * Frees the job. Does not block. A job in flight is abandoned: its answer is dropped and its callback
 * is not called, but it may still write its outputs. Allowed inside that job's callback. NULL is allowed.
 */
void kops_job_free(kops_job *job);

/*
 * Adding ops. The kops_job_OP() calls send nothing and do not block. They copy the views. kernel names the
 * kernel to run (`kops-client ops` lists them); NULL: the fastest that is accurate enough.
 *   KOPS_E_INVALID  rank out of range, freed buffer, buffer of another handle, full job (64 ops, 16 KiB)
 *   KOPS_E_STATE    after kops_submit()
 *   KOPS_E_NOMEM
 *
 * Errors of jobs. The daemon checks types, shapes and bounds when the job arrives. If it finds a mistake, no
 * op runs. kops_wait(), kops_run() or the callback report
 *
 *   KOPS_E_SHAPE        ranks or extents do not fit together
 *   KOPS_E_DTYPE        the op does not take this element type, or its views have different ones
 *   KOPS_E_RANGE        a view exceeds its buffer
 *   KOPS_E_OVERLAP      the output overlaps itself, or an input where that is not allowed
 *   KOPS_E_INVALID      an offset that is not a multiple of the element size, a parameter out of range
 *   KOPS_E_READONLY     the output is in a read-only buffer
 *   KOPS_E_UNSUPPORTED  no kernel, or not the one named, takes these views
 *   KOPS_E_DEVICE       no such device, or RESIDENT buffers of different devices
 *   KOPS_E_BUSY         too much work is queued: see kops_job_retry_after_us()
 *   KOPS_E_QUOTA        over a limit of this user, or estimated to take longer than the daemon allows
 *   KOPS_E_NOMEM, KOPS_E_DEADLINE, KOPS_E_CANCELLED, KOPS_E_LOST, KOPS_E_INTERRUPTED, KOPS_E_CONNECT
 * docs/operations.md says what to do about each.
 */

/* Made by scripts/gen-ops: job calls */

/*
 * c = activation(alpha * a * b + beta * c + bias).
 *   a           [batch,] M, K; with batch 1, or none, it serves every batch of c
 *   b           [batch,] K, N; likewise
 *   bias        1 to 3 axes; extents of 1, and missing leading ones, are repeated to c's
 *   c           [batch,] M, N
 *   alpha       a factor of the product
 *   beta        a factor of the old c
 *   precision   what kernels may do to f32 operands (ieee: FMA only); f32 (0), ieee (1), tf32 (2) or bf16 (3)
 *   activation  what becomes of each element of the result; none (0), relu (1), gelu (2), gelu_tanh (3) or silu
 *               (4)
 *   alpha_imag  the imaginary part of alpha, of complex types
 *   beta_imag   the imaginary part of beta, of complex types
 *   conj_a      multiply by a's complex conjugate
 *   conj_b      multiply by b's complex conjugate
 * All of one type: f32, f64, f16, bf16, c64 or c128. To give bias, activation, alpha_imag, beta_imag, conj_a or
 * conj_b, call kops_job_op(). c must not overlap a, b or bias. With beta 0, c is not read, so NaN in it does no
 * harm. With alpha 0, a and b are not read. With K 0, their product is 0. An absent bias is 0. gelu is v *
 * Phi(v), gelu_tanh its approximation by tanh, and silu v / (1 + exp(-v)). Products of f16 and bf16 are summed
 * in f32. If the type is neither f64 nor c128, alpha and beta are rounded to f32. Finite ones beyond its range
 * are refused; NaN and Inf are accepted. The factors of c64 and c128 are alpha + alpha_imag i and beta +
 * beta_imag i. These types take no bias and no activation. conj_a and conj_b change nothing for other types.
 */
int kops_job_gemm(kops_job *job, double alpha, kops_view a, kops_view b, double beta, kops_view c,
                  kops_precision precision, const char *kernel);

/*
 * y = softmax(scale * x + mask) over the last axis, or its logarithm.
 *   x      1 to 4 axes
 *   mask   x's shape; extents of 1, and missing leading ones, are repeated; zeros if absent
 *   y      x's shape
 *   scale  a factor of x; finite in f32
 *   log    take the logarithm
 * All of one type: f32, f64, f16 or bf16. To give mask, call kops_job_op(). y may be x, as the same view; any
 * other overlap is refused. Where a row of scale * x + mask has NaN or +Inf, the row of y becomes NaN. Where it
 * has -Inf only, y is NaN without a mask; with one it is 0, and its logarithm -Inf.
 */
int kops_job_softmax(kops_job *job, kops_view x, kops_view y, double scale, bool log, const char *kernel);

/*
 * y[…, j, i] = x[…, i, j], bit for bit.
 *   x  2 to 4 axes
 *   y  x's shape with the last two extents exchanged
 * All of one type: f32, f64, f16, bf16, i32, c64 or c128. y must not overlap x. No op needs it for an operand:
 * ops take transposed views, and copy nothing.
 */
int kops_job_transpose(kops_job *job, kops_view x, kops_view y, const char *kernel);

/*
 * y = a + b, rounded once.
 *   a  1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
 *   b  as a
 *   y  1 to 4 axes
 * All of one type: f32, f64, f16, bf16, c64 or c128. y may be a or b, as the same view; any other overlap is
 * refused.
 */
int kops_job_add(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel);

/*
 * y = x, bit for bit.
 *   x  1 to 4 axes
 *   y  x's shape
 * All of one type: f32, f64, f16, bf16, i32, c64 or c128. y must not overlap x. x and y may be in memory of
 * different kinds, such as shared memory and a device's.
 */
int kops_job_copy(kops_job *job, kops_view x, kops_view y, const char *kernel);

/*
 * y = the sum, the largest, the mean, the smallest or the product of x over its last axis.
 *   x     1 to 4 axes, of complex numbers 1 to 3
 *   y     x's shape without the last axis, or with 1 there
 *   kind  what to compute of each row; sum (0), max (1), mean (2), min (3) or prod (4)
 * All of one type: f32, f64, f16, bf16, c64 or c128. y must not overlap x. Of no element the sum is 0, the
 * product 1, the largest -Inf, the smallest Inf and the mean NaN. A NaN among the elements gives NaN. A mean of
 * finite numbers is finite, even if their sum is beyond the type's range. Such a sum is infinite, and may be
 * where only a part of it is. So may a product, which may also be 0 where a part of it is too small. Products
 * are made in f64. Complex numbers have sums and means.
 */
int kops_job_reduce(kops_job *job, kops_view x, kops_view y, kops_reduction kind, const char *kernel);

/*
 * y = a * b, element by element, rounded once.
 *   a  1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
 *   b  as a
 *   y  1 to 4 axes
 * All of one type: f32, f64, f16 or bf16. y may be a or b, as the same view; any other overlap is refused.
 */
int kops_job_multiply(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel);

/*
 * y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis.
 *   x         1 to 4 axes
 *   weight    one axis, as long as x's last; ones if absent; a view without buffer is absent
 *   bias      one axis, as long as x's last; zeros if absent; a view without buffer is absent
 *   residual  x's shape; extents of 1, and missing leading ones, are repeated; added to x before, zeros if
 *             absent
 *   y         x's shape
 *   sum       x's shape; x + residual, if wanted
 *   eps       added to the variance; 0 or more, finite in f32
 * All of one type: f32, f64, f16 or bf16. To give residual or sum, call kops_job_op(). y may be x or residual,
 * as the same view; any other overlap is refused. sum may be x or residual, as the same view; any other overlap
 * is refused. The variance is that of all elements of the row, not of a sample. A row with NaN or an infinity
 * becomes NaN; so does one of f64 whose sum leaves the range. With a residual, x + residual takes the place of
 * x, rounded to their type.
 */
int kops_job_layer_norm(kops_job *job, kops_view x, kops_view weight, kops_view bias, kops_view y, double eps,
                        const char *kernel);

/*
 * y[i, :] = x[indices[i], :], bit for bit.
 *   x        [rows, columns]; f32, f64, f16, bf16, i32, c64 or c128
 *   indices  1 or 2 axes, of rows of x from 0 on; i32
 *   y        the indices' axes, then x's columns; x's type
 * y must not overlap x or indices. An index that is negative, or not below the number of rows, gives a row of
 * zeros.
 */
int kops_job_gather(kops_job *job, kops_view x, kops_view indices, kops_view y, const char *kernel);

/*
 * y = x / sqrt(mean of x^2 + eps) * weight + bias along the last axis.
 *   x         1 to 4 axes
 *   weight    one axis, as long as x's last; ones if absent; a view without buffer is absent
 *   bias      one axis, as long as x's last; zeros if absent
 *   residual  x's shape; extents of 1, and missing leading ones, are repeated; added to x before, zeros if
 *             absent
 *   y         x's shape
 *   sum       x's shape; x + residual, if wanted
 *   eps       added to the mean of squares; 0 or more, finite in f32
 * All of one type: f32, f64, f16 or bf16. To give bias, residual or sum, call kops_job_op(). y may be x or
 * residual, as the same view; any other overlap is refused. sum may be x or residual, as the same view; any
 * other overlap is refused. A row with NaN becomes NaN. An infinity becomes NaN, and what is finite in its row
 * 0. With a residual, x + residual takes the place of x, rounded to their type.
 */
int kops_job_rms_norm(kops_job *job, kops_view x, kops_view weight, kops_view y, double eps,
                      const char *kernel);

/*
 * y = a - b, element by element, rounded once.
 *   a  1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's
 *   b  as a
 *   y  1 to 4 axes
 * All of one type: f32, f64, f16, bf16, c64 or c128. y may be a or b, as the same view; any other overlap is
 * refused.
 */
int kops_job_subtract(kops_job *job, kops_view a, kops_view b, kops_view y, const char *kernel);

typedef enum kops_unary_function {
	KOPS_UNARY_FUNCTION_NONE = 0,
	KOPS_UNARY_FUNCTION_RELU = 1,
	KOPS_UNARY_FUNCTION_GELU = 2,
	KOPS_UNARY_FUNCTION_GELU_TANH = 3,
	KOPS_UNARY_FUNCTION_SILU = 4,
	KOPS_UNARY_FUNCTION_SIGMOID = 5,
	KOPS_UNARY_FUNCTION_TANH = 6,
	KOPS_UNARY_FUNCTION_EXP = 7,
	KOPS_UNARY_FUNCTION_LOG = 8,
	KOPS_UNARY_FUNCTION_SQRT = 9,
	KOPS_UNARY_FUNCTION_ABS = 10,
} kops_unary_function;

/*
 * y = function(scale * x), limited to [low, high].
 *   x         1 to 4 axes
 *   y         x's shape
 *   function  what is computed of scale * x; none (0), relu (1), gelu (2), gelu_tanh (3), silu (4), sigmoid
 *             (5), tanh (6), exp (7), log (8), sqrt (9) or abs (10)
 *   scale     a factor of x; finite in f32
 *   low       the least that y may be
 *   high      the most that y may be
 * All of one type: f32, f64, f16 or bf16. y may be x, as the same view; any other overlap is refused. NaN stays
 * NaN. Where low is above high, y is high. Types but f64 are computed in f32, and low, high and scale * x are
 * rounded to it. sigmoid is 1 / (1 + exp(-v)), silu v * sigmoid(v), gelu v * Phi(v), and gelu_tanh its
 * approximation by tanh; the last three are NaN at -Inf. log and sqrt of negative numbers are NaN.
 */
int kops_job_unary(kops_job *job, kops_view x, kops_view y, kops_unary_function function, double scale,
                   double low, double high, const char *kernel);

typedef enum kops_attention_causal {
	KOPS_ATTENTION_CAUSAL_NONE = 0,
	KOPS_ATTENTION_CAUSAL_TOP_LEFT = 1,
	KOPS_ATTENTION_CAUSAL_BOTTOM_RIGHT = 2,
} kops_attention_causal;

/*
 * o = softmax(scale * q * kT + mask) * v, for each batch and head.
 *   q        queries: [batch, heads, queries, head_dim], or without batch, or without heads too; head_dim is at
 *            most 1024; f32, f64, f16 or bf16
 *   k        keys: [batch, kv_heads, keys, head_dim]; kv_heads divides heads; q's type
 *   v        values: [batch, kv_heads, keys, value_dim]; value_dim is at most 1024; q's type
 *   mask     added to scale * q * kT; broadcast to [batch, heads, queries, keys]; q's type; a view without
 *            buffer is absent
 *   lengths  how many keys of each batch count, the first ones: [batch]; i32
 *   o        [batch, heads, queries, value_dim]; q's type
 *   lse      the logarithm of the sum of exponentials of what a query sees: [batch, heads, queries]; f64 if q
 *            is; f32 or f64
 *   scale    factor of q * kT; 0: 1 / sqrt(head_dim); finite in f32
 *   causal   query i sees keys 0 to i (top_left), or to i + keys - queries (bottom_right), of the keys that
 *            count; none (0), top_left (1) or bottom_right (2)
 *   window   a query sees so many keys up to its own position, and beyond it too unless causal; 0: all; at most
 *            2.14748e+09
 * To give lengths, lse, scale or window, call kops_job_op(). o must not overlap q, k, v, mask or lengths. lse
 * must not overlap q, k, v, mask, lengths or o. kv_heads divides heads: neighbouring heads of q share one of k
 * and v. A query that sees no key, or only keys whose mask is -Inf, gives zeros, and -Inf in lse. Keys from a
 * batch's length on are not seen, whatever the query; a length below 0 counts as 0, and one beyond the keys as
 * all of them. With bottom_right the last query is the one of the last key that counts. A value of v that is
 * not finite may show in rows whose queries do not see its key.
 */
int kops_job_attention(kops_job *job, kops_view q, kops_view k, kops_view v, kops_view mask, kops_view o,
                       kops_attention_causal causal, const char *kernel);

typedef enum kops_arg_reduce_kind {
	KOPS_ARG_REDUCE_KIND_MAX = 0,
	KOPS_ARG_REDUCE_KIND_MIN = 1,
} kops_arg_reduce_kind;

/*
 * y = the index of the largest or smallest element of x along its last axis.
 *   x     1 to 4 axes; the last one has an element; f32, f64, f16 or bf16
 *   y     x's shape without the last axis, or with 1 there; i32
 *   kind  what to look for in each row; max (0) or min (1)
 * y must not overlap x. Of equal elements it is the first. The first NaN counts as the largest, and as the
 * smallest.
 */
int kops_job_arg_reduce(kops_job *job, kops_view x, kops_view y, kops_arg_reduce_kind kind, const char *kernel);

typedef enum kops_top_k_kind {
	KOPS_TOP_K_KIND_LARGEST = 0,
	KOPS_TOP_K_KIND_SMALLEST = 1,
} kops_top_k_kind;

typedef enum kops_top_k_order {
	KOPS_TOP_K_ORDER_VALUE = 0,
	KOPS_TOP_K_ORDER_INDEX = 1,
} kops_top_k_order;

/*
 * values = the k largest or smallest elements of x along its last axis, indices = where they are.
 *   x        1 to 4 axes; f32, f64, f16 or bf16
 *   values   x's shape with k along the last axis; x's type
 *   indices  the shape of values; where they are along x's last axis, if wanted; i32; a view without buffer is
 *            absent
 *   k        how many of each row; at most 1024
 *   kind     which elements; largest (0) or smallest (1)
 *   order    what the results are sorted by: the largest, or smallest, first; or the lowest index first; value
 *            (0) or index (1)
 * values must not overlap x. indices must not overlap x or values. Of equal elements the lower index comes
 * first; -0 and 0 are equal. NaN counts as larger than all numbers.
 */
int kops_job_top_k(kops_job *job, kops_view x, kops_view values, kops_view indices, uint32_t k,
                   kops_top_k_kind kind, kops_top_k_order order, const char *kernel);

typedef enum kops_search_metric {
	KOPS_SEARCH_METRIC_IP = 0,
	KOPS_SEARCH_METRIC_L2 = 1,
	KOPS_SEARCH_METRIC_COSINE = 2,
} kops_search_metric;

/*
 * values = the k best scores of each query with rows of base, indices = these rows.
 *   queries  [queries, columns]; up to 65536 columns; f32, f16 or bf16
 *   base     [rows, columns]; queries's type
 *   filter   [words] or [queries, words], words = rows / 32 rounded up; row i may come if bit i % 32 of word i
 *            / 32 is 1; all if absent; i32
 *   values   [queries, k], the scores; f32
 *   indices  [queries, k], rows of base, if wanted; i32; a view without buffer is absent
 *   k        how many rows for each query; at most 256
 *   metric   the inner product, largest first; the squared distance, smallest first; or the cosine, largest
 *            first; ip (0), l2 (1) or cosine (2)
 * To give filter, call kops_job_op(). values must not overlap queries, base or filter. indices must not overlap
 * queries, base, filter or values. Scores are computed in f32, and their order is the result; of equal ones the
 * lower index comes first. The cosine with a vector of zeros is 0. A row whose score is NaN, or whose bit in
 * the filter is 0, never comes. Where fewer than k rows remain, the index is -1 and the value -Inf, or Inf for
 * l2.
 */
int kops_job_search(kops_job *job, kops_view queries, kops_view base, kops_view values, kops_view indices,
                    uint32_t k, kops_search_metric metric, const char *kernel);

/*
 * factor = L with a = L * LH, or U with a = UH * U.
 *   a       […, n, n]: symmetric or Hermitian matrices, of which one triangle is read; f32, f64, c64 or c128
 *   factor  a's shape; a's type
 *   info    […], [1] of one matrix: 0, or the order of the first leading minor that is not positive definite;
 *           i32; a view without buffer is absent
 *   upper   a's upper triangle is read, and the factor is upper
 *   keep    the factor's other triangle stays as it is, instead of becoming zeros
 * factor may be a, as the same view; any other overlap is refused. info must not overlap a or factor. LH is the
 * conjugate transpose of L. Where a matrix is not positive definite, info is the order of the first leading
 * minor that is not, or that has a NaN, and the factor's triangle is NaN. The imaginary parts of a's diagonal
 * count as 0.
 */
int kops_job_cholesky(kops_job *job, kops_view a, kops_view factor, kops_view info, bool upper, bool keep,
                      const char *kernel);

/*
 * x with a * x = b, or x * a = b, a triangular.
 *   a       […, n, n], of which one triangle is read; repeated along the axes before
 *   b       […, n, m], or […, m, n] with right
 *   x       b's shape
 *   upper   a's upper triangle is read
 *   unit    the diagonal counts as 1, and is not read
 *   conj_a  a stands for its conjugate; transposed, its view has the strides exchanged
 *   right   x * a = b
 * All of one type: f32, f64, c64 or c128. To give conj_a, call kops_job_op(). x may be b, as the same view; any
 * other overlap is refused. By substitution, so a 0 on the diagonal gives infinities and NaN, as BLAS's trsm
 * does.
 */
int kops_job_triangular_solve(kops_job *job, kops_view a, kops_view b, kops_view x, bool upper, bool unit,
                              bool right, const char *kernel);

/*
 * lu = L and U with P * a = L * U, pivots = the exchanges of rows that make P.
 *   a       […, m, n]; f32, f64, c64 or c128
 *   lu      a's shape; a's type
 *   pivots  […, min(m, n)]: row i was exchanged with row pivots[i], from 0 on; i32; a view without buffer is
 *           absent
 *   info    […], [1] of one matrix: 0, or the number, from 1 on, of the first diagonal element of U that is 0;
 *           i32; a view without buffer is absent
 * lu may be a, as the same view; any other overlap is refused. pivots must not overlap a or lu. info must not
 * overlap a, lu or pivots. L's diagonal of ones is left out. A pivot is the element of the largest |re| + |im|
 * of its column, the first of equal ones. A column of zeros gives a 0 in U, which info tells; the factorisation
 * goes on.
 */
int kops_job_lu(kops_job *job, kops_view a, kops_view lu, kops_view pivots, kops_view info, const char *kernel);

/* End of job calls */

/* An operand by its name, such as "a". */
typedef struct kops_operand {
	const char *name;
	kops_view view;
} kops_operand;

/* An attribute by its name. A flag is 0 or 1. A choice is its number, or its word if `choice` is not NULL. */
typedef struct kops_attribute {
	const char *name;
	double value;
	const char *choice;
} kops_attribute;

/*
 * Adds any op, by names: those of the calls above, "a" or "alpha". Attributes that are not given have their
 * defaults. KOPS_E_INVALID: a wrong name of an operand or attribute, or a value of a wrong type.
 * KOPS_E_UNSUPPORTED: this libkops does not know the op.
 */
int kops_job_op(kops_job *job, const char *op, const kops_operand *operands, size_t n_operands,
                const kops_attribute *attributes, size_t n_attributes, const char *kernel);

/*
 * Computes the type and shape of an output from the inputs and attributes of an op: *ret_view becomes a dense
 * view without buffer. Views of inputs need no buffer here; views of outputs are ignored. Needs no daemon. On
 * failure *ret_view is untouched and, if why is not NULL, up to why_size bytes of it hold the sentence.
 * KOPS_E_SHAPE, KOPS_E_DTYPE, and the codes of kops_job_op().
 */
int kops_op_result(const char *op, const kops_operand *operands, size_t n_operands,
                   const kops_attribute *attributes, size_t n_attributes, const char *output,
                   kops_view *ret_view, char *why, size_t why_size);

/*
 * Called once, from kops_process() or a blocking call, when the job is done or has failed. status is 0 or
 * KOPS_E_*. A callback may submit and free jobs, and free buffers. In a callback, blocking calls and
 * kops_process() return KOPS_E_STATE, and kops_close() does nothing.
 */
typedef void kops_callback(kops_job *job, int status, void *user);

/*
 * Sends the job, or queues it to be sent. Does not block, even when the socket is full or the daemon is away.
 * done may be NULL. The job's buffers may be freed while it is in flight; see kops_free().
 *
 * A finished job may be submitted again: it runs the same ops on the present content of its buffers. Submit a
 * job again instead of making an equal one. The daemon prepares it at the second time, and from the third time
 * on a run costs little more than a message each way.
 *
 * KOPS_E_INVALID for a job without ops or with a freed buffer, KOPS_E_STATE when the job is in flight already,
 * KOPS_E_NOMEM, KOPS_E_SYSTEM; the code of a buffer that could not be made.
 */
int kops_submit(kops_job *job, kops_callback *done, void *user);

/*
 * Blocks until the job is done, at most for timeout_ms: 0 only looks for its answer, negative means no limit.
 * Returns the job's status. After KOPS_E_TIMEOUT the job is still in flight: wait again.
 * KOPS_E_STATE for a job that was never submitted.
 */
int kops_wait(kops_job *job, int timeout_ms);

/*
 * Checks and plans the job in the daemon without running it, so that its first run is as fast as later ones.
 * Blocks. kops_job_receipt() then names device and kernels, but its times mean nothing. No ops can be added
 * afterwards. Does nothing if the daemon cannot prepare jobs. Returns the errors that the job would have;
 * KOPS_E_QUOTA if the daemon has no room to keep it (it can still be submitted); KOPS_E_INTERRUPTED if the
 * daemon restarted meanwhile.
 */
int kops_job_prepare(kops_job *job);

/*
 * Submits the job without a callback and blocks until it is done, at most for the handle's timeout.
 * kops_run_for() blocks for timeout_ms instead: 0 does not block, negative means no limit. Returns the job's
 * status. After KOPS_E_TIMEOUT the job is cancelled as by kops_cancel(). It is in flight until it has stopped:
 * kops_wait() blocks until then.
 */
int kops_run(kops_job *job);
int kops_run_for(kops_job *job, int timeout_ms);

/*
 * kops_submit() without a callback, then kops_wait() with this timeout, for callers that have other work
 * between two waits. Blocks. After KOPS_E_TIMEOUT the job is still in flight, and not cancelled: call
 * kops_wait() to go on waiting.
 */
int kops_submit_and_wait(kops_job *job, int timeout_ms);

/* Returns true between kops_submit() and the end of the job. */
bool kops_job_is_out(const kops_job *job);

/*
 * Asks the daemon to cancel the job. Does not block: kops_wait() tells how the job ended.
 *
 *   - A waiting or paused job ends at once with KOPS_E_CANCELLED.
 *   - A running job ends with this code at the next point where it can be paused, between two ops or parts of
 *     an op: within some 50 ms. If it finishes earlier, it ends as usual.
 *   - The outputs of a cancelled job are undefined.
 *
 * KOPS_E_STATE when the job is not in flight.
 */
int kops_cancel(kops_job *job);

/* Returns a sentence that explains why the job failed; "" otherwise. Valid until it is submitted again or
 * freed. */
const char *kops_job_error(const kops_job *job);

/* Returns, after KOPS_E_BUSY, in how many microseconds to submit the job again; else 0. */
uint64_t kops_job_retry_after_us(const kops_job *job);

/*
 * The size of an op: f32, 4096 × 4096 × 1024. For a gemm [batch,] M, N, K; for an add the extents of y; for
 * other ops the extents of x. rank 0: the daemon is too old to tell.
 */
typedef struct kops_op_shape {
	kops_dtype dtype;
	uint32_t rank;
	uint64_t extents[KOPS_VIEW_AXES]; /* the first `rank` of them count, the others are 0 */
} kops_op_shape;

/*
 * Only the library makes receipts. Later versions may add members at the end: never copy the struct or use its
 * size.
 */
typedef struct kops_op_receipt {
	const char *op;          /* "gemm" */
	const char *kernel;      /* the kernel that ran: "cublas" */
	const char *why;         /* why it was chosen */
	double flops;            /* counted from the shapes */
	double bytes;            /* read + written, counted from the shapes */
	double compute_us;       /* 0 where the device does not time single ops */
	const char *passed_over; /* why each other kernel was not chosen; may be "" in jobs of many ops */
	bool larger_errors; /* errors may be larger than allowed: the job named the kernel, or has no other */
	bool learning;      /* the daemon tries kernels on jobs of this shape: a later one may run another */
	kops_op_shape shape;
} kops_op_receipt;

typedef struct kops_receipt {
	const char *device;
	double queue_us;    /* arrival to start */
	double upload_us;   /* host to device, before computing begins */
	double compute_us;  /* all ops, and transfers meanwhile */
	double download_us; /* device to host, after computing ends */
	double total_us;    /* arrival at the daemon to completion */
	size_t n_ops;
	bool prepared;    /* the daemon keeps the job, so its next run is not sent, checked or planned again */
	bool graph;       /* the whole job was launched by one call, as a CUDA graph */
	uint32_t pauses;  /* how often the job was paused for jobs of others, or of another queue */
	double paused_us; /* for how long in all; in none of the times above but total_us */
} kops_receipt;

/*
 * Returns what ran and how long each step took; NULL unless the job succeeded. Valid until the job is submitted
 * again or freed. Texts are "" if this process had no memory for them.
 */
const kops_receipt *kops_job_receipt(const kops_job *job);

/* Returns the receipt of op i, counted from 0; NULL if i >= n_ops. Valid as long as the job's receipt. */
const kops_op_receipt *kops_receipt_op(const kops_receipt *receipt, size_t i);

/* ---- One-op calls: build, submit, wait ------------------------------------------------------ */

/*
 * Each call makes a job of one op and runs it as kops_run() does. Blocks. Returns 0, or an error of the
 * kops_job_OP() call of the same name or of the job: see "Adding ops" and "Errors of jobs". kops_error()
 * explains it, with the shapes. To get a receipt, use a job. After KOPS_E_TIMEOUT the op is cancelled: do not
 * touch its buffers until kops_buffer_wait_idle() returns 0. These calls run in order.
 */

typedef enum kops_trans {
	KOPS_N = 0, /* as stored */
	KOPS_T = 1, /* transposed */
} kops_trans;

/*
 * C = alpha * op(A) * op(B) + beta * C, where op() is the matrix or its transpose. op(A) is m × depth, op(B)
 * is depth × n, and C is m × n. All are row-major from the start of their buffers, f32 for kops_sgemm() and
 * f64 for kops_dgemm(). A is stored as m × depth, or with KOPS_T as depth × m; B likewise. lda, ldb and ldc
 * count elements from row to row as stored. With beta == 0, C is not read. C must not be A or B. For offsets,
 * batches and other types use kops_job_gemm(). The arguments after the handle are those of BLAS, in its
 * order; calls that mirror nothing take views, so that kops_job_gemm() has eight.
 *
 * KOPS_E_INVALID for a leading dimension below the stored columns, or an unknown trans; KOPS_E_RANGE for a
 * matrix that is larger than its buffer.
 */
int kops_sgemm(kops *k, kops_trans trans_a, kops_trans trans_b, uint64_t m, uint64_t n, uint64_t depth,
               float alpha, kops_buffer *a, uint64_t lda, kops_buffer *b, uint64_t ldb, float beta,
               kops_buffer *c, uint64_t ldc);
int kops_dgemm(kops *k, kops_trans trans_a, kops_trans trans_b, uint64_t m, uint64_t n, uint64_t depth,
               double alpha, kops_buffer *a, uint64_t lda, kops_buffer *b, uint64_t ldb, double beta,
               kops_buffer *c, uint64_t ldc);

/* Made by scripts/gen-ops: one-op calls */

/*
 * y = softmax(scale * x + mask) over the last axis, or its logarithm. Shapes, types and use in place as for
 * kops_job_softmax(). log is false.
 */
int kops_softmax(kops *k, kops_view x, kops_view y, double scale);

/* y[…, j, i] = x[…, i, j], bit for bit. Shapes, types and use in place as for kops_job_transpose(). */
int kops_transpose(kops *k, kops_view x, kops_view y);

/* y = a + b, rounded once. Shapes, types and use in place as for kops_job_add(). */
int kops_add(kops *k, kops_view a, kops_view b, kops_view y);

/* y = x, bit for bit. Shapes, types and use in place as for kops_job_copy(). */
int kops_copy(kops *k, kops_view x, kops_view y);

/*
 * y = the sum, the largest, the mean, the smallest or the product of x over its last axis. Shapes, types and
 * use in place as for kops_job_reduce().
 */
int kops_reduce(kops *k, kops_view x, kops_view y, kops_reduction kind);

/* y = a * b, element by element, rounded once. Shapes, types and use in place as for kops_job_multiply(). */
int kops_multiply(kops *k, kops_view a, kops_view b, kops_view y);

/*
 * y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis. Shapes, types and use in place as
 * for kops_job_layer_norm().
 */
int kops_layer_norm(kops *k, kops_view x, kops_view weight, kops_view bias, kops_view y, double eps);

/* y[i, :] = x[indices[i], :], bit for bit. Shapes, types and use in place as for kops_job_gather(). */
int kops_gather(kops *k, kops_view x, kops_view indices, kops_view y);

/*
 * y = x / sqrt(mean of x^2 + eps) * weight + bias along the last axis. Shapes, types and use in place as for
 * kops_job_rms_norm().
 */
int kops_rms_norm(kops *k, kops_view x, kops_view weight, kops_view y, double eps);

/* y = a - b, element by element, rounded once. Shapes, types and use in place as for kops_job_subtract(). */
int kops_subtract(kops *k, kops_view a, kops_view b, kops_view y);

/* y = function(scale * x), limited to [low, high]. Shapes, types and use in place as for kops_job_unary(). */
int kops_unary(kops *k, kops_view x, kops_view y, kops_unary_function function, double scale, double low,
               double high);

/*
 * o = softmax(scale * q * kT + mask) * v, for each batch and head. Shapes, types and use in place as for
 * kops_job_attention().
 */
int kops_attention(kops *connection, kops_view q, kops_view k, kops_view v, kops_view mask, kops_view o,
                   kops_attention_causal causal);

/*
 * y = the index of the largest or smallest element of x along its last axis. Shapes, types and use in place as
 * for kops_job_arg_reduce().
 */
int kops_arg_reduce(kops *k, kops_view x, kops_view y, kops_arg_reduce_kind kind);

/*
 * values = the k largest or smallest elements of x along its last axis, indices = where they are. Shapes, types
 * and use in place as for kops_job_top_k().
 */
int kops_top_k(kops *connection, kops_view x, kops_view values, kops_view indices, uint32_t k,
               kops_top_k_kind kind, kops_top_k_order order);

/*
 * values = the k best scores of each query with rows of base, indices = these rows. Shapes, types and use in
 * place as for kops_job_search().
 */
int kops_search(kops *connection, kops_view queries, kops_view base, kops_view values, kops_view indices,
                uint32_t k, kops_search_metric metric);

/*
 * factor = L with a = L * LH, or U with a = UH * U. Shapes, types and use in place as for kops_job_cholesky().
 */
int kops_cholesky(kops *k, kops_view a, kops_view factor, kops_view info, bool upper, bool keep);

/*
 * x with a * x = b, or x * a = b, a triangular. Shapes, types and use in place as for
 * kops_job_triangular_solve().
 */
int kops_triangular_solve(kops *k, kops_view a, kops_view b, kops_view x, bool upper, bool unit, bool right);

/*
 * lu = L and U with P * a = L * U, pivots = the exchanges of rows that make P. Shapes, types and use in place
 * as for kops_job_lu().
 */
int kops_lu(kops *k, kops_view a, kops_view lu, kops_view pivots, kops_view info);

/* End of one-op calls */

/* ---- Living in another event loop ------------------------------------------------------------ */

/*
 * These calls put a handle into the program's own event loop. None of them blocks. In each round of the loop:
 *   1. Call kops_fd(). It returns -1 between connections. Register the descriptor again whenever it changes: a
 *      new connection never has the number of the last one.
 *   2. Poll it level-triggered for kops_events() (POLLIN, POLLOUT), at most for kops_timeout() ms (-1: no
 *      limit). While jobs are in flight or buffers are being made that is at most a second, since no poll()
 * wakes up when this program closes the socket.
 *   3. Call kops_process(), whatever poll() returned. It runs callbacks and returns how many jobs ended
 *      and buffers were made, or a negative code when the connection is lost for good.
 * If the program closed the descriptor itself, or put another file in its place, kops_fd() returns -1, and step
 * 3 connects again. The loop must not unregister the old number if another file has it by now.
 */
int kops_fd(kops *k);
short kops_events(const kops *k);
int kops_timeout(const kops *k);
int kops_process(kops *k);

/* ---- What the daemon has ----------------------------------------------------------------------- */

/* Only the library makes these structs. Later versions may add members at the end, as to receipts. */
typedef struct kops_device_info {
	const char *name;                   /* "gpu0", "cpu" */
	const char *description;            /* for people */
	const char *disabled_kernels;       /* kernels that failed their self-test; "" when all is well */
	uint64_t memory_bytes, cache_bytes; /* cache: of the last level; 0: not known */
	uint64_t jobs_done, jobs_failed, queued, running, resident_bytes, canary_age_us;
	double busy_us;                               /* sum over all jobs, with the running one so far */
	double temperature_c, power_w, power_limit_w; /* 0: not known */
	uint64_t memory_used_bytes;                   /* by all programs; for the CPU: not available to kopsd */
	uint64_t memory_free_bytes;                   /* both 0: not known */
	double utilization; /* busy share of about the last second, 0 to 1: a GPU for any program, another
	                       device for kopsd; below 0: not known */
} kops_device_info;

typedef struct kops_kernel_info {
	const char *op, *name, *device_kind, *idea, *dtypes;
	const char *takes; /* "any strides" */
	bool tensor_cores; /* multiplies f32 on tensor cores, so it may pass the device's FMA rate */
} kops_kernel_info;

typedef struct kops_info {
	const char *daemon; /* "kopsd VERSION" */
	uint64_t uptime_us, sessions, buffers, mapped_bytes, pinned_bytes, pool_bytes;
	size_t n_devices, n_kernels;
} kops_info;

/*
 * Asks for devices, kernels and counters. Blocks for two round trips. Free *ret_info with kops_info_free().
 * KOPS_E_NOMEM and what any blocking call can return.
 */
int kops_query(kops *k, kops_info **ret_info);
void kops_info_free(kops_info *info);

/* Return device or kernel i, counted from 0, or NULL. Kernels are sorted by op. Valid as long as info. */
const kops_device_info *kops_info_device(const kops_info *info, size_t i);
const kops_kernel_info *kops_info_kernel(const kops_info *info, size_t i);

/* ---- Who uses the daemon ----------------------------------------------------------------------- */

/*
 * A user sees itself, and root sees all users. The daemon's setting see-others names others who see all. Only
 * the library makes these structs. Later versions may add members at the end, as to receipts.
 */

/* Sums over jobs. */
typedef struct kops_usage {
	uint64_t jobs_done, jobs_failed; /* failed: all others that ended, cancelled ones too */
	double flops, bytes;             /* of jobs done, counted from the shapes: bytes read and written */
	double queue_us, total_us;       /* of jobs done: arrival to start, and to completion */
	double device_us;                /* upload, compute and download of all jobs, running ones so far */
	double p50_us, p99_us; /* arrival to completion, of the latest 32 to 65 thousand jobs done, within 1/32;
	                          0: no job was done */
} kops_usage;

/* A user who has sessions, or one of the last 256 or more users who had some. */
typedef struct kops_user_info {
	uint32_t uid;
	uint64_t sessions, buffers;
	uint64_t mapped_bytes, pinned_bytes, resident_bytes; /* of its buffers */
	uint64_t prepared_bytes;                             /* of its prepared jobs */
	uint64_t queued, running;                            /* jobs that wait, and jobs that have started */
	double backlog_us;                                   /* planned time of these jobs that is left */
	const kops_usage *usage;                             /* of all its sessions, past ones too */
} kops_user_info;

typedef struct kops_running_job {
	const char *device, *op, *kernel; /* of the first op */
	uint32_t n_ops;
	uint32_t parts, parts_done; /* long ops are split into parts; on a GPU done means enqueued */
	double running_us;          /* since its start */
	double estimate_us;         /* what it was planned to take */
	kops_op_shape shape;        /* of the first op */
} kops_running_job;

typedef struct kops_session_info {
	uint64_t session; /* number, from 1 when the daemon started */
	uint32_t uid, pid;
	const char *client; /* its kops_options.name, else its program's; may be "" */
	uint64_t age_us, buffers, prepared, queued, running;
	const kops_running_job *oldest; /* the running job that started first; NULL: none runs */
	const kops_usage *usage;
	uint64_t mapped_bytes, resident_bytes; /* of its buffers, as limits count them */
	bool own;                              /* this is the calling session */
} kops_session_info;

typedef struct kops_traced_job {
	uint64_t number;  /* in order of their ends, from 1 when the daemon started */
	uint64_t session; /* number of its session */
	uint32_t uid, pid;
	int status;                       /* 0 or KOPS_E_* */
	uint64_t age_us;                  /* since it ended */
	const char *device, *op, *kernel; /* of the first op */
	uint32_t n_ops;
	double flops, bytes;                                           /* of all ops, counted from the shapes */
	double queue_us, upload_us, compute_us, download_us, total_us; /* as in kops_receipt */
	bool prepared, graph;                                          /* likewise */
	bool ring;           /* submitted through shared memory, without a system call */
	kops_op_shape shape; /* of the first op */
	uint64_t ended_ns;   /* when it ended, by CLOCK_MONOTONIC; 0: the daemon is too old to tell */
} kops_traced_job;

/* A published buffer that this process may attach. */
typedef struct kops_buffer_info {
	uint64_t number; /* in order of publishing, from 1 when the daemon started */
	uint32_t uid;    /* of its user */
	const char *name;
	uint64_t bytes;
	const char *device;  /* where it is RESIDENT; "": it is SHARED */
	kops_op_shape shape; /* as published; rank 0: not told */
	kops_access access;
	uint32_t group; /* for KOPS_GROUP */
	bool keep;
	uint64_t age_us;   /* since it was published */
	uint64_t attached; /* how often it is attached now; this and pid are 0 for other users' buffers */
	uint32_t pid;      /* of the session whose end ends the name; 0: none */
} kops_buffer_info;

typedef struct kops_list kops_list;

/*
 * List users by uid, and sessions, jobs and published buffers by number, the largest first. Blocks for one
 * round trip for every 32 items. Free *ret_list with kops_list_free().
 *
 * kops_list_jobs() lists jobs among the latest 1024 that were answered: those with a number above `after`, at
 * most `max` of them (0: all). To follow the jobs, pass the first number of the list before.
 *
 * KOPS_E_UNSUPPORTED (the daemon is too old), KOPS_E_NOMEM, and what any blocking call can return.
 */
int kops_list_users(kops *k, kops_list **ret_list);
int kops_list_sessions(kops *k, kops_list **ret_list);
int kops_list_jobs(kops *k, uint64_t after, size_t max, kops_list **ret_list);
int kops_list_buffers(kops *k, kops_list **ret_list);
void kops_list_free(kops_list *list);

/* Returns the number of items. */
size_t kops_list_count(const kops_list *list);

/* Return item i, counted from 0; NULL if there is none, or items are of another kind. Valid as long as the
 * list.
 */
const kops_user_info *kops_list_user(const kops_list *list, size_t i);
const kops_session_info *kops_list_session(const kops_list *list, size_t i);
const kops_traced_job *kops_list_job(const kops_list *list, size_t i);
const kops_buffer_info *kops_list_buffer(const kops_list *list, size_t i);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
