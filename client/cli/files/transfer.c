#include "files/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "common/threads.h"
#include "cpus.h"
#include "progress.h"
#include "show.h"

#define STEP_BYTES  (4ull << 20)  /* read or written at a time, if others wait for it */
#define LARGE_BYTES (64ull << 20) /* read by several threads: by two on two cores, twice as fast */
#define THREADS_MAX 8
#define CALL_BYTES  (1024ull << 20) /* read() stops below 2 GiB anyway */
#define PATIENCE_US 500e3           /* before progress is shown */
#define INTERVAL_US 100e3

/* ---- Progress ---- */

struct showing {
	const char *verb, *path;
	uint64_t total;
	bool is_possible;
	double began_us, next_us;
};

static struct showing showing_of(const char *verb, const char *path, uint64_t total)
{
	double now_us = cli_now_us();

	return (struct showing){.verb = verb,
	                        .path = path,
	                        .total = total,
	                        .is_possible = path && total > STEP_BYTES && progress_is_possible(),
	                        .began_us = now_us,
	                        .next_us = now_us + PATIENCE_US};
}

/* Shows a bar, the rate since the beginning, and how long the rest takes at that rate. */
static void show(struct showing *s, uint64_t done)
{
	double now_us = s->is_possible ? cli_now_us() : 0, taken_us = now_us - s->began_us;
	double share = (double)done / (double)s->total;
	char line[256];

	if (now_us < s->next_us || done == 0)
		return;
	s->next_us = now_us + INTERVAL_US;
	snprintf(line, sizeof(line), "%.20s, %.16s left, %s %.120s", show_rate((double)done, taken_us).text,
	         show_us(taken_us * (1 - share) / share).text, s->verb, s->path);
	progress_show_share(share, line);
}

static void show_end(const struct showing *s)
{
	if (s->is_possible)
		progress_erase();
}

/* ---- Reading ---- */

/* Threads take the parts in order. */
struct reading {
	int fd;
	char *to;
	uint64_t bytes, offset, step;
	_Atomic uint64_t next, done; /* next: the first byte that no thread has begun with */
	_Atomic uint64_t end;        /* the first byte that could not be read; else `bytes` */
	_Atomic int error;           /* why; 0: the file ends */
};

uint64_t transfer_read_piece(int fd, char *to, uint64_t bytes, uint64_t offset)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, to + done, bytes - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = 0;
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	if (done == bytes)
		errno = 0;
	return done;
}

static void note_end(struct reading *r, uint64_t end, int error)
{
	uint64_t before = r->end;

	while (end < before && !atomic_compare_exchange_weak(&r->end, &before, end))
		;
	if (end < before)
		r->error = error;
}

/* Returns false if there is no more to read. */
static bool read_part(struct reading *r)
{
	uint64_t at = atomic_fetch_add(&r->next, r->step), bytes = r->step;

	if (at >= r->end)
		return false;
	if (bytes > r->bytes - at)
		bytes = r->bytes - at;
	uint64_t n = transfer_read_piece(r->fd, r->to + at, bytes, r->offset + at);
	if (n < bytes)
		note_end(r, at + n, errno);
	r->done += n;
	return n == bytes;
}

static void *read_parts(void *reading)
{
	while (read_part(reading))
		;
	return NULL;
}

uint64_t transfer_read(int fd, const char *path, void *data, uint64_t bytes, uint64_t offset)
{
	struct showing showing = showing_of("reading", path, bytes);
	struct reading r = {.fd = fd, .to = data, .bytes = bytes, .offset = offset, .end = bytes};
	unsigned n = bytes >= LARGE_BYTES ? cpus_count() - 1 : 0, started = 0;
	pthread_t threads[THREADS_MAX - 1];

	if (n > THREADS_MAX - 1)
		n = THREADS_MAX - 1;
	r.step = n > 0 || showing.is_possible ? STEP_BYTES : CALL_BYTES;
	while (started < n && threads_create(&threads[started], NULL, read_parts, &r) == 0)
		started++;
	while (read_part(&r))
		show(&showing, r.done);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	show_end(&showing);
	errno = r.error;
	return r.end;
}

/* ---- Writing ---- */

int transfer_write(int fd, const char *path, const void *data, uint64_t bytes)
{
	struct showing showing = showing_of("writing", path, bytes);
	uint64_t done = 0, step = showing.is_possible ? STEP_BYTES : CALL_BYTES;

	errno = 0;
	while (done < bytes) {
		ssize_t n = write(fd, (const char *)data + done, bytes - done < step ? bytes - done : step);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		errno = 0;
		done += (uint64_t)n;
		show(&showing, done);
	}
	show_end(&showing);
	return done == bytes ? 0 : -1;
}

/* ---- Opening ---- */

/* Copies a pipe's content into memory, since its size must be known. Returns a descriptor, or -1 with errno. */
static int spool(int from)
{
	static char block[1 << 16];
	int memory = memfd_create("kops-input", MFD_CLOEXEC);
	ssize_t n = -1;

	while (memory >= 0 && (n = read(from, block, sizeof(block))) > 0)
		if (transfer_write(memory, "", block, (uint64_t)n) < 0)
			break;
	if (n == 0 && lseek(memory, 0, SEEK_CUR) > 0)
		return memory;
	int saved = n == 0 ? ENODATA : errno;
	close(memory);
	errno = saved;
	return -1;
}

int transfer_open(const char **path, char *why)
{
	static bool stdin_taken;
	bool standard = strcmp(*path, "-") == 0;
	struct stat st;

	if (standard && stdin_taken)
		return why_invalid(why, "only one file can be -; save the other one and give its name");
	stdin_taken |= standard;
	*path = standard ? "standard input" : *path;
	int fd = standard ? dup(STDIN_FILENO) : open(*path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return why_invalid(why, "cannot open %s: %s", *path, strerror(errno));
	if (!standard && (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode)))
		return fd;
	int memory = spool(fd);
	if (memory < 0)
		why_invalid(why, "cannot read %s: %s", *path, strerror(errno));
	close(fd);
	return memory < 0 ? KOPS_E_INVALID : memory;
}
